"""Where hosts find each other's pages: soft state, which each host says of itself, and which dies with it.

Owns what this host says, how it comes to be said again after it was lost, and the search for who has most of a chain.
The host is the truth and the directory a hint: whoever is found there is asked before anything is believed. A
directory that is gone, slow or wrong costs a fetch a fraction of a second now and then, and is otherwise as if there
were none.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence

from nexuskv.errors import StartupError
from nexuskv_daemon.core import peering
from nexuskv_daemon.peers.board import Board, BoardDown
from nexuskv_daemon.peers.breaker import Breaker
from nexuskv_daemon.peers.local import LocalSession
from nexuskv_daemon.peers.settings import endpoint

log = logging.getLogger(__name__)
LEASE_SECONDS, RENEW_SECONDS = 15, 3.0
PAGE_SECONDS = 3600
"""Said again after half of that."""
LOOK_SECONDS = 0.25
BELIEVED_SECONDS = 2.0
"""For so long a host's address is not looked up again."""
MOST_CHANGES = 1 << 20
"""More than that are not remembered while the directory is down: everything is said anew instead."""


class Directory:
    """`host` is this host's boot epoch in 8 bytes, `address` where it is reached, `session` is with the core."""

    def __init__(self, board: Board, host: bytes, address: str, session: LocalSession) -> None:
        self._board = board
        self._host = host
        self._address = address
        self._session = session
        self._breaker = Breaker(random.random)
        self._trouble = ""
        self._changes: dict[bytes, bool] = {}
        self._changed = asyncio.Event()
        self._said_all = False
        self._say_again_at = 0.0
        self._known: dict[bytes, tuple[float, str]] = {}

    @property
    def state(self) -> str:
        """For people."""
        return f"down: {self._trouble}" if self._trouble else "up"

    def changed(self, pages: list[bytes], *, there: bool) -> None:
        """Pages came to this host, or went."""
        if self._said_all or self._changes:
            self._changes.update(dict.fromkeys(pages, there))
            if len(self._changes) > MOST_CHANGES:
                self._changes.clear()
                self._said_all = False
        self._changed.set()

    async def holders(self, keys: Sequence[bytes], *, chained: bool) -> list[str]:
        """Addresses of hosts that have the furthest of these pages; none when the directory is of no use just now.

        Where residency is closed under "prefix of", it takes a query for each halving of the chain.
        """
        if not keys or not self._breaker.closed(time.monotonic()):
            return []
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                found = await (self._bisect(keys) if chained else self._from_the_end(keys))
        except (BoardDown, TimeoutError) as error:
            self._trouble = str(error) or f"no answer within {LOOK_SECONDS} s"
            self._breaker.failed(time.monotonic())
            return []
        self._breaker.succeeded()
        self._trouble = ""
        return found

    async def _bisect(self, keys: Sequence[bytes]) -> list[str]:
        best: list[str] = []
        low, high = 0, len(keys)  # somebody has keys[:low], nobody has keys[high]
        while low < high:
            middle = (low + high) // 2
            there = await self._living(keys[middle])
            if there:
                best, low = there, middle + 1
            else:
                high = middle
        return best

    async def _from_the_end(self, keys: Sequence[bytes]) -> list[str]:
        """Checkpoints stand alone: the last one that somebody has, found sixteen at a time."""
        for stop in range(len(keys), 0, -16):
            some = keys[max(0, stop - 16) : stop]
            found = await asyncio.gather(*(self._living(key) for key in some))
            if last := next((each for each in reversed(found) if each), []):
                return last
        return []

    async def _living(self, page: bytes) -> list[str]:
        """Addresses of living hosts that say they have a page, in any order; not this one's."""
        hosts = [host for host in await self._board.hosts(page) if len(host) == len(self._host)]
        found = [await self._reached(host) for host in hosts if host != self._host]
        return [address for address in found if address]

    async def _reached(self, host: bytes) -> str:
        """A host's address, "" for one that does not live or whose address is none."""
        now = time.monotonic()
        until, address = self._known.get(host, (0.0, ""))
        if now >= until:
            address = _checked(await self._board.address(host))
            self._known = {each: kept for each, kept in self._known.items() if kept[0] > now}
            self._known[host] = now + BELIEVED_SECONDS, address
        return address

    async def run(self) -> None:
        """Says what there is to say, for ever."""
        next_renewal, pause = 0.0, 0.0
        while True:
            try:
                if time.monotonic() >= next_renewal:
                    next_renewal = time.monotonic() + RENEW_SECONDS
                    await self._renew()
                await self._say()
                pause = 0.0
            except BoardDown as error:
                if not self._trouble:
                    log.warning("the directory is of no use just now: %s", error)
                self._trouble = str(error)
                pause = min(RENEW_SECONDS * 4, 2 * pause + random.uniform(0.1, 0.5))  # noqa: S311  # no secret
            await self._pause(max(pause, 0.0), next_renewal)

    async def _pause(self, pause: float, next_renewal: float) -> None:
        """Until there is something to say; after a failure, some time in any case."""
        if pause:
            await asyncio.sleep(pause)
            return
        self._changed.clear()
        if self._changes:
            return
        try:
            async with asyncio.timeout(max(0.0, next_renewal - time.monotonic())):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def leave(self) -> None:
        """Takes this host out, if that is quick; else its lease runs out soon."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._board.leave(self._host)
                await self._board.close()
        except (BoardDown, TimeoutError) as error:
            log.info("the directory did not hear that this host leaves: %s", error)

    async def _renew(self) -> None:
        lasted = await self._board.renew(self._host, self._address, LEASE_SECONDS)
        self._trouble = ""
        if not lasted or time.monotonic() >= self._say_again_at:
            self._said_all = False

    async def _say(self) -> None:
        if not self._said_all:
            await self._say_all()
            return
        changes, self._changes = self._changes, {}
        try:
            for there in (True, False):
                pages = [page for page, now in changes.items() if now is there]
                await self._board.note(self._host, pages, PAGE_SECONDS, there=there)
        except BoardDown:
            self._changes = {**changes, **self._changes}
            raise

    async def _say_all(self) -> None:
        """Everything that is here. What changes meanwhile is said afterwards."""
        self._said_all = True  # so that changes are noted from here on
        self._changes.clear()
        try:
            following = 1
            while following:
                asked = peering.Inventory(self._session.id(), following)
                listed = await self._session.ask(asked, peering.Listed)
                await self._board.note(self._host, listed.keys, PAGE_SECONDS, there=True)
                following = listed.next
        except BoardDown:
            self._said_all = False
            raise
        self._say_again_at = time.monotonic() + PAGE_SECONDS / 2


def _checked(address: bytes | None) -> str:
    try:
        return str(endpoint((address or b"").decode()))
    except (StartupError, UnicodeDecodeError):
        return ""
