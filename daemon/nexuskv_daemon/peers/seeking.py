"""Who has the longest prefix, and where it is worth asking.

Owns the question and its time limit: one slow peer does not hold up the rest. The directory is asked first; where there
is none, or it knows nobody, all connected peers are. Moves nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nexuskv.contract import AllPages, Descriptor
from nexuskv.errors import NexusError
from nexuskv.protocol import messages as m
from nexuskv_daemon.peers.neighbours import Neighbours
from nexuskv_daemon.peers.peer import Connected, Peer
from nexuskv_daemon.peers.ways import FAIR_SECONDS

NAMED = 5
LOOK_SECONDS = 1.0
REACH_SECONDS = 1.0
GRACE, GRACE_SECONDS = 3.0, 0.02
HOLDERS = 4
"""Hosts of a page that are tried at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """Who has most of these pages of a tenant; an answer is of use until `until`, of time.monotonic."""

    tenant: str
    descriptor: Descriptor
    keys: list[bytes]
    until: float

    @property
    def chained(self) -> bool:
        """Whether who has a page has all before it too."""
        return isinstance(self.descriptor.reuse, AllPages)


class Directory(Protocol):
    """Where hosts find each other's pages."""

    async def holders(self, keys: Sequence[bytes], *, chained: bool) -> list[str]:
        """Addresses of hosts that have the furthest of these pages. Empty also when the directory is of no use."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A peer with pages: `keys[start:stop]` of those asked for are there."""

    peer: Peer
    connected: Connected
    arena: int
    start: int
    stop: int


class Seeker:
    """Finds candidates among the neighbours."""

    def __init__(self, neighbours: Neighbours, directory: Directory | None) -> None:
        self._neighbours = neighbours
        self._directory = directory
        self._late: set[asyncio.Task[Candidate | None]] = set()

    async def seek(self, question: Question) -> list[Candidate]:
        """Peers that have some of the pages, who has most of them first."""
        if self._directory is not None:
            addresses = await self._directory.holders(question.keys, chained=question.chained)
            seconds = min(REACH_SECONDS, _share(question))
            reached = await asyncio.gather(
                *(self._neighbours.reach(each, seconds) for each in addresses[:HOLDERS])
            )
            if found := await self.ask([peer for peer in reached if peer is not None], question):
                return found
        return await self.ask(list(self._neighbours.peers.values()), question)

    def none_because(self, tenant: str) -> str:
        """Why nobody was found: most often nobody has the pages, but certificates may name other tenants."""
        links = [
            peer.connected.link for peer in self._neighbours.peers.values() if peer.connected is not None
        ]
        if not links or any(tenant in link.tenants for link in links):
            return "no peer that may be asked has more of these pages"
        theirs = sorted({name for link in links for name in link.tenants})
        return (
            f"no connected peer is for tenant {tenant!r}, but for {', '.join(theirs[:NAMED]) or 'none'}: its "
            "certificate, or --plain-tenant of both hosts, has to name the tenant"
        )

    async def ask(self, peers: list[Peer], question: Question) -> list[Candidate]:
        """Those of `peers` that have some of the pages, who has most of them first."""
        now, seconds = time.monotonic(), min(LOOK_SECONDS, _share(question))
        able = [
            (peer, way)
            for peer in peers
            if (way := peer.connected) is not None
            and way.ways.carry(question.descriptor)
            and question.tenant in way.link.tenants
            and peer.breaker.closed(now)
        ]
        asked = [_measure(peer, way, question, seconds) for peer, way in able]
        found = await self._gather({asyncio.create_task(each) for each in asked}, len(question.keys), seconds)
        return sorted(found, key=lambda each: (-each.stop, each.peer.gauge.estimate(1 << 20, now) or 0.0))

    async def _gather(
        self, asking: set[asyncio.Task[Candidate | None]], wanted: int, seconds: float
    ) -> list[Candidate]:
        """Who answered in time. Once somebody has pages, the others get little more than what that one took."""
        started = time.monotonic()
        found: list[Candidate] = []
        left = seconds
        while asking and left > 0 and not any(each.stop == wanted for each in found):
            done, asking = await asyncio.wait(asking, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            found += [candidate for task in done if (candidate := task.result()) is not None]
            took = time.monotonic() - started
            left = (max(GRACE_SECONDS, GRACE * took) if found else seconds) - took
        self._late |= asking  # they end by themselves, and count against their peers
        for task in asking:
            task.add_done_callback(self._late.discard)
        return found


def _share(question: Question) -> float:
    """Seconds that looking may take: half of what is left, since the pages must still come."""
    return max(0.0, question.until - time.monotonic()) / 2


async def _measure(peer: Peer, way: Connected, question: Question, seconds: float) -> Candidate | None:
    keys = question.keys
    try:
        async with asyncio.timeout(seconds):
            arena = await way.arena(question.tenant, question.descriptor)
            if not arena:
                return None
            found = await way.link.ask(m.Measure(way.link.id(), arena, keys), m.Measured)
    except TimeoutError:
        if seconds >= FAIR_SECONDS:
            peer.failed(f"no answer within {seconds:.1f} s")
        return None
    except NexusError as error:
        peer.failed(str(error))
        return None
    if not found.start < found.stop <= len(keys):
        return None
    return Candidate(peer, way, arena, found.start, found.stop)
