"""The ways to a peer's pages: one for each data address that both ends can use, RDMA before TCP.

Owns the choice. A way that others stand behind is taken once a few bytes have come over it on trial, for each tenant,
since RDMA has queues for each; when it fails it rests, and the next one is taken meanwhile, at once by what is still
absent of the same batch. Knows nothing of how bytes move, nor of what they are.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nexuskv.contract import Descriptor, permissions
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.breaker import Breaker
from nexuskv_daemon.peers.gauge import Gauge
from nexuskv_daemon.peers.lanes import Lane, Piece
from nexuskv_daemon.peers.memory import Mappings
from nexuskv_transport.base import Outcome, Region

log = logging.getLogger(__name__)
FAIR_SECONDS = 0.5
"""Whoever had less time than this is not to blame."""
TRIAL_SECONDS = 10.0
PATIENCE_SECONDS = 1.0
"""So long, and a quarter of what is left until its deadline, a pull waits for the first trial; for later ones not."""


@dataclass(slots=True)
class Path:
    """What is known of pulls from a peer over one transport, on all links; `trouble` is why it is not taken."""

    name: str
    gauge: Gauge = field(default_factory=Gauge)
    nbytes: int = 0
    trouble: str = ""


class Spot(NamedTuple):
    """Bytes at `offset` of the peer's region of that number, as many as `into` takes."""

    number: int
    offset: int
    into: memoryview


class Load(NamedTuple):
    """Pages of a tenant to be pulled together, all of one kind, into slots of these segments."""

    tenant: str
    descriptor: Descriptor
    segments: frozenset[int]
    spots: list[Spot]


class Way:
    """One data address of a peer, on one link. `regions` are what the peer told of its memory there."""

    def __init__(self, peer: str, lane: Lane, path: Path, memory: Mappings) -> None:
        self.lane = lane
        self.path = path
        self.regions: dict[int, Region] = {}
        self._peer = peer
        self._memory = memory
        self._breaker = Breaker(random.random, patience=1)
        self._proved: set[str] = set()
        self._trials: dict[str, asyncio.Task[None]] = {}

    @property
    def works(self) -> bool:
        """Whether bytes came over it, and it has not failed since."""
        return bool(self._proved)

    async def reaches(self, load: Load) -> bool:
        """Whether both ends have their memory ready for it."""
        if any(spot.number not in self.regions for spot in load.spots):
            return False
        ours = [await self._memory.region(segment, self.lane.scheme) for segment in load.segments]
        return None not in ours

    async def is_proved(self, tenant: str, sample: Spot, left: float) -> bool:
        """Whether it may be taken for a tenant's pages; if it is time to, has `sample` tried. `left`: seconds."""
        if tenant in self._proved:
            return True
        if tenant not in self._trials and self._breaker.closed(time.monotonic()):
            self._trials[tenant] = asyncio.create_task(self._try(tenant, sample))
            if not self.path.trouble:
                await asyncio.wait({self._trials[tenant]}, timeout=min(PATIENCE_SECONDS, left / 4))
        return tenant in self._proved

    async def pull(self, spots: Sequence[Spot], deadline: float) -> list[Outcome]:
        """As `Lane.pull`. What it takes, and whether it works, is noted."""
        started = time.monotonic()
        pieces = [Piece(self.regions[number], offset, into) for number, offset, into in spots]
        outcomes = await self.lane.pull(pieces, deadline)
        now = time.monotonic()
        came = sum(spot.into.nbytes for spot, how in zip(spots, outcomes, strict=True) if how is Outcome.OK)
        self.path.nbytes += came
        bad = next((outcome for outcome in outcomes if outcome is not Outcome.OK), None)
        if bad is None:
            self.path.gauge.pulled(came, now - started, now)
            self.path.trouble = ""
        elif bad is Outcome.DEADLINE and now - started < FAIR_SECONDS:
            self._proved.clear()  # a trial, which has more time, tells whose fault it was
        else:
            self._failed(bad)
        return outcomes

    async def _try(self, tenant: str, sample: Spot) -> None:
        """Pulls the beginning of a page to where nobody looks."""
        try:
            scratch = await self._memory.scratch(tenant, self.lane.scheme)
            if scratch is None:
                self._failed(Outcome.REFUSED)
                return
            into = scratch[: sample.into.nbytes]
            piece = Piece(self.regions[sample.number], sample.offset, into)
            (outcome,) = await self.lane.pull([piece], time.monotonic() + TRIAL_SECONDS)
            self._succeeded(tenant) if outcome is Outcome.OK else self._failed(outcome)
        finally:
            del self._trials[tenant]

    def _succeeded(self, tenant: str) -> None:
        if not self._proved:
            log.info("%s: pages come over %s", self._peer, self.path.name)
        self._breaker.succeeded()
        self._proved.add(tenant)
        self.path.trouble = ""

    def _failed(self, how: Outcome) -> None:
        if self.lane.closed:  # by this host, or with its link
            return
        trouble = f"{how.value}: {self.lane.reason}" if self.lane.reason else how.value
        if self._proved or not self.path.trouble:
            log.warning("%s: %s does not bring pages: %s", self._peer, self.path.name, trouble)
        self._breaker.failed(time.monotonic())
        self._proved.clear()
        self.path.trouble = trouble


class Ways:
    """All of a link, the best first; none where both ends have no transport in common."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = ways
        self.reason = ""
        """Why pages did not come, last time."""

    def __bool__(self) -> bool:
        return bool(self._ways)

    def carry(self, descriptor: Descriptor) -> bool:
        """Whether pages of that kind may come over one of them."""
        return any(permissions.may_travel(descriptor, way.lane.scheme) for way in self._ways)

    @property
    def taken(self) -> Way | None:
        """Over which pages come just now."""
        working = (way for way in self._ways if way.works)
        return next(working, self._ways[-1] if self._ways else None)

    def learn(self, told: p.Regions) -> None:
        """The peer told of memory; that of other transports is of no use."""
        for way in self._ways:
            if told.scheme == way.lane.scheme:
                way.regions.update((region.number, region) for region in told.regions)

    def know(self, number: int) -> bool:
        """Whether the peer told of a region."""
        return any(number in way.regions for way in self._ways)

    async def pull(self, load: Load, deadline: float) -> list[Outcome]:
        """How each spot ended, by `deadline` of time.monotonic. Afterwards nothing writes into them any more.

        Not to be cancelled: transports would go on writing.
        """
        outcomes = [Outcome.CLOSED] * len(load.spots)
        left = list(range(len(load.spots)))
        self.reason = "the memory of both ends has no way in common"
        for way in self._ways:
            if not left or not await self._may_take(way, load, deadline):
                continue
            ended = await way.pull([load.spots[place] for place in left], deadline)
            for place, outcome in zip(left, ended, strict=True):
                outcomes[place] = outcome
            left = [place for place in left if outcomes[place] is not Outcome.OK]
            self.reason = way.lane.reason
        return outcomes

    async def _may_take(self, way: Way, load: Load, deadline: float) -> bool:
        if not permissions.may_travel(load.descriptor, way.lane.scheme) or not await way.reaches(load):
            return False
        return way is self._ways[-1] or await way.is_proved(
            load.tenant, load.spots[0], deadline - time.monotonic()
        )

    def close(self) -> None:
        """Ends all pulls."""
        for way in self._ways:
            way.lane.close()


def ways_to(peer: str, lanes: Sequence[Lane], paths: Mapping[str, Path], memory: Mappings) -> Ways:
    """Of a new link to the peer at that address."""
    return Ways([Way(peer, lane, paths[lane.scheme], memory) for lane in lanes])
