"""Fetches: the missing part of a prefix, from the peer that has most of it, in batches.

Owns who waits for whom (two fetches of one page share one pull), the deadline of each, and the decision whether a
pull is worth it. Finding peers and landing pages are done elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from nexuskv.errors import NexusError
from nexuskv.protocol.cost import ComputeCost
from nexuskv_daemon.peers.asking import Ask, Granted
from nexuskv_daemon.peers.landing import Batch, Ground, Landed, Lander
from nexuskv_daemon.peers.local import Declined
from nexuskv_daemon.peers.peer import Peer, Unusable
from nexuskv_daemon.peers.seeking import Candidate, Seeker
from nexuskv_daemon.peers.ways import FAIR_SECONDS

BATCH_PAGES = 1024
"""A batch is pinned there, pulled and committed while the next one is being pinned."""
TRIES = 3
"""Peers that one fetch turns to, at most."""
FEWER = {
    False: "had fewer pages than it said",
    True: "has the pages, but not all of these blocks: they must be computed",
}
LATE = "the deadline passed: what was under way is kept for the next time"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pages of one chain, or blocks: `parent` is the key before the first of `keys`, `before` how many pages are.

    `ask` is how peers are asked for them.

    `have` of `keys` make a boundary here already; where a page is of use only below the one before it, those are left
    out, and it is 0.
    """

    ground: Ground
    ask: Ask
    keys: list[bytes]
    parent: bytes
    before: int
    cost: ComputeCost
    have: int = 0

    def rest(self, have: int) -> Wanted:
        """What is still wanted once `have` pages make a boundary here."""
        if not self.ground.chained:
            return replace(self, have=have)
        if not have:
            return self
        return replace(self, keys=self.keys[have:], parent=self.keys[have - 1], before=self.before + have)


@dataclass(slots=True)
class Outcome:
    """What came of a fetch."""

    pages: int = 0
    nbytes: int = 0
    source: str = ""
    reason: str = ""
    reached: int = 0
    """Leading pages of a chain that are resident now."""

    def add(self, landed: Landed, source: str) -> None:
        """A batch of a peer landed, behind all others."""
        self.reached += landed.reached
        self.join(Outcome(landed.pages, landed.nbytes, source, landed.reason))

    def join(self, other: Outcome) -> None:
        """Another pull came before this one's end."""
        self.pages += other.pages
        self.nbytes += other.nbytes
        self.reason = other.reason
        if other.pages:
            self.source = other.source


class Fetcher:
    """All fetches of the daemon."""

    def __init__(self, seeker: Seeker, lander: Lander, batch_bytes: int) -> None:
        """A batch has as many pages as fit `batch_bytes`, one at least."""
        self._seeker = seeker
        self._lander = lander
        self._batch_bytes = batch_bytes
        self._pulls: dict[tuple[int, bytes], asyncio.Task[Outcome]] = {}
        self._ends: dict[tuple[int, bytes], asyncio.Future[None]] = {}

    async def fetch(self, wanted: Wanted, until: float, source: Peer | None = None) -> Outcome:
        """What came by `until`, of time.monotonic, from `source` alone if one is given.

        What other hosts do wrong is no error: it is a miss with a reason.
        """
        with self._ending_at(wanted) as before:
            if before is not None:
                await asyncio.wait({before}, timeout=max(0.0, until - time.monotonic()))
            return await self._fetch(wanted, until, source)

    @contextlib.contextmanager
    def _ending_at(self, wanted: Wanted) -> Iterator[asyncio.Future[None] | None]:
        """A long chain comes in several requests, all at once: each waits for the one that ends where it begins."""
        arena = wanted.ground.arena
        last, mine = (arena, wanted.keys[-1]), asyncio.get_running_loop().create_future()
        before = self._ends.get((arena, wanted.parent))
        self._ends[last] = mine
        try:
            yield before
        finally:
            mine.set_result(None)
            if self._ends.get(last) is mine:
                del self._ends[last]

    async def _fetch(self, wanted: Wanted, until: float, source: Peer | None) -> Outcome:
        total = Outcome()
        while (left := until - time.monotonic()) > 0:
            have = await wanted.ground.boundary(wanted.keys)
            if have == len(wanted.keys):
                total.reason = ""
                return total
            missing = wanted.rest(have)
            theirs = self._under_way(missing)
            pull = theirs or self._begin(missing, until, source)
            if not (await asyncio.wait({pull}, timeout=left))[0]:
                break
            total.join(pull.result())
            if theirs is None:
                return total
        total.reason = LATE
        return total

    def _under_way(self, missing: Wanted) -> asyncio.Task[Outcome] | None:
        """Somebody else's pull of the first page that is missing here."""
        arena, keys = missing.ground.arena, missing.keys
        if missing.ground.descriptor.lone_block:  # of which others may be pulling any
            return next((pull for key in keys if (pull := self._pulls.get((arena, key)))), None)
        return self._pulls.get((arena, keys[0] if missing.ground.chained else keys[-1]))

    def _begin(self, missing: Wanted, until: float, source: Peer | None) -> asyncio.Task[Outcome]:
        """Starts a pull, which goes on also when nobody waits for it any more."""
        pull = asyncio.create_task(self._pull(missing, until, source))
        names = [(missing.ground.arena, key) for key in missing.keys]
        self._pulls.update((name, pull) for name in names if name not in self._pulls)

        def ended(task: asyncio.Task[Outcome]) -> None:
            for name in names:
                if self._pulls.get(name) is task:
                    del self._pulls[name]

        pull.add_done_callback(ended)
        return pull

    async def _pull(self, missing: Wanted, until: float, source: Peer | None) -> Outcome:
        ground, total = missing.ground, Outcome()
        question = missing.ask.question(ground.session.tenant, missing.keys, until)
        found = await (self._seeker.ask([source], question) if source else self._seeker.seek(question))
        reached = [missing.ask.reach(missing.keys, candidate) for candidate in found]
        better = [candidate for candidate in reached if candidate.stop > missing.have]
        if not better:
            total.reason = self._seeker.none_because(question.tenant)
        for candidate in better[:TRIES]:
            if candidate.stop <= total.reached:
                break
            if reason := _not_worth_it(missing, candidate):
                total.reason = reason
                continue
            with blaming(candidate, until, total):
                await self._batches(candidate, missing, until, total)
            if not total.reason or time.monotonic() >= until:
                break
        return total

    async def _batches(self, candidate: Candidate, missing: Wanted, until: float, total: Outcome) -> None:
        """Batch after batch, each being pinned while the one before it is pulled."""
        batches = _split(missing, total.reached, candidate.stop, self._batch_bytes)
        pin = partial(missing.ask.pin, candidate)
        pins = [asyncio.create_task(pin(batches[0].keys, until))]
        try:
            for nth, asked in enumerate(batches):
                pinned = await pins[0]
                pins += [asyncio.create_task(pin(b.keys, until)) for b in batches[nth + 1 : nth + 2]]
                batch = asked.pinned(pinned.start, pinned.places)
                landed = await self._lander.land(missing.ground, batch, candidate.connected, until)
                _release(candidate, pins.pop(0).result())
                account(candidate, landed)
                total.add(landed, candidate.peer.address)
                if pinned.start + landed.reached < len(asked.keys):
                    total.reason = (
                        total.reason
                        or f"{candidate.peer.address} {FEWER[missing.ground.descriptor.lone_block]}"
                    )
                    return
        finally:
            for each in pins:
                with contextlib.suppress(NexusError, TimeoutError):
                    _release(candidate, await each)


@contextlib.contextmanager
def blaming(candidate: Candidate, until: float, total: Outcome) -> Iterator[None]:
    """Takes note of what goes wrong with one peer; that counts against it, unless it is this host's own affair."""
    started = time.monotonic()
    try:
        yield
    except Declined as error:
        total.reason = str(error)
    except TimeoutError:
        total.reason = LATE
        if until - started >= FAIR_SECONDS:
            candidate.peer.failed(f"it did not pin pages within {until - started:.1f} s")
    except NexusError as error:
        total.reason = f"{candidate.peer.address}: {error}"
        candidate.peer.failed(str(error))
        if isinstance(error, Unusable):
            candidate.connected.link.close(str(error))


def _release(candidate: Candidate, granted: Granted) -> None:
    candidate.connected.link.tell_soon(granted.release())


def _split(missing: Wanted, reached: int, stop: int, batch_bytes: int) -> list[Batch]:
    """What to pin together. What is not chained is one batch: its boundary is pinned as a whole."""
    if not missing.ground.chained:
        return [Batch(missing.keys, [], missing.parent)]
    pages = max(1, min(BATCH_PAGES, batch_bytes // missing.ground.descriptor.page_bytes))
    return [
        Batch(missing.keys[at : min(at + pages, stop)], [], missing.keys[at - 1] if at else missing.parent)
        for at in range(reached, stop, pages)
    ]


def account(candidate: Candidate, landed: Landed) -> None:
    """What a batch tells of its peer."""
    peer = candidate.peer
    peer.counters.pages_in += landed.pages
    peer.counters.bytes_in += landed.nbytes
    peer.counters.bad_pages += landed.bad
    if landed.blame:
        peer.failed(landed.blame)
    elif landed.pages:
        peer.succeeded()


def _not_worth_it(missing: Wanted, candidate: Candidate) -> str:
    """Why computing is quicker than pulling; "" when it is not, or when not both are known."""
    descriptor, cost = missing.ground.descriptor, missing.cost
    tokens = (candidate.stop - missing.have) * descriptor.page_tokens
    before = (missing.before + missing.have) * descriptor.page_tokens
    computing = cost.seconds(tokens, before)
    nbytes = (candidate.stop - candidate.start) * descriptor.page_bytes
    pulling = candidate.peer.gauge.estimate(nbytes, time.monotonic())
    if not computing or pulling is None or pulling <= computing:
        return ""
    return (
        f"computing is quicker: {tokens} tokens take {computing:.3g} s, pulling {nbytes} bytes from "
        f"{candidate.peer.address} about {pulling:.3g} s"
    )
