"""One other host, as this one knows it: its link, the lane that its pages come over, how quick and how reliable it is.

Owns what was learnt on a link, the choice of the lane, and the peer's figures. Knows nothing of the core, nor of how a
link came to be.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from nexuskv import contract
from nexuskv.contract import Descriptor
from nexuskv.errors import DescriptorError, NexusError
from nexuskv.protocol.hosts import PeerStats
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.breaker import Breaker
from nexuskv_daemon.peers.gauge import Gauge
from nexuskv_daemon.peers.lanes import Lane
from nexuskv_daemon.peers.link import Link
from nexuskv_daemon.peers.serving import Guest
from nexuskv_transport.base import Region, Transport

MOST_TROUBLE = 200
"""Characters of it that are shown."""
FAIR_SECONDS = 0.5
"""Whoever had less time than this is not to blame."""


class Unusable(NexusError):
    """The peer did what none should: it lied, or sent what is no page. That counts against it."""


@dataclass(slots=True)
class Counters:
    """Since the daemon's start."""

    pages_in: int = 0
    bytes_in: int = 0
    pages_out: int = 0
    bad_pages: int = 0
    failures: int = 0


@dataclass(slots=True, eq=False)
class Connected:
    """A link, and what was learnt on it: nothing of that outlives it. `lane` is None where no transport is shared."""

    link: Link
    guest: Guest
    lane: Lane | None
    regions: dict[int, Region] = field(default_factory=dict)
    arenas: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def learn(self, told: p.Regions) -> None:
        """The peer told of memory; that of other transports is of no use."""
        if self.lane is not None and told.scheme == self.lane.scheme:
            self.regions.update((region.number, region) for region in told.regions)

    async def arena(self, tenant: str, descriptor: Descriptor) -> int:
        """The peer's number for a descriptor's pages, 0 when it has none. Raises Unusable, LinkLost, PeerRefused."""
        known = self.arenas.get((tenant, descriptor.digest))
        if known is not None:
            return known
        opened = await self.link.ask(p.Open(self.link.id(), tenant, descriptor.digest), p.Opened)
        if opened.arena:
            _check_digest(opened.descriptor, descriptor.digest)
            self.arenas[tenant, descriptor.digest] = opened.arena
        return opened.arena


def _check_digest(encoded: bytes, digest: bytes) -> None:
    try:
        lies = contract.decode(encoded).digest != digest
    except DescriptorError as error:
        raise Unusable(f"it sent what is no descriptor: {error}") from error
    if lies:
        raise Unusable("it sent a descriptor of another digest than was asked for")


class Peer:
    """`address` is where it is reached; `static` ones stand in the configuration and are never given up."""

    def __init__(self, address: str, *, static: bool) -> None:
        self.address = address
        self.static = static
        self.instance = ""
        self.myself = False
        self.trouble = ""
        self.counters = Counters()
        self.breaker = Breaker(random.random)
        self._gauges: defaultdict[str, Gauge] = defaultdict(Gauge)
        self._links: list[Connected] = []

    @property
    def connected(self) -> Connected | None:
        """The way to it, if there is one."""
        return self._links[0] if self._links else None

    def has(self, link: Link) -> bool:
        """Whether a link is with it."""
        return any(each.link is link for each in self._links)

    def hang_up(self) -> None:
        """Ends its links and lanes."""
        for each in self._links:
            each.link.close("the daemon is stopping")
            if each.lane is not None:
                each.lane.close()

    @property
    def scheme(self) -> str:
        """The path that its pages come over, "" while there is none."""
        connected = self.connected
        return connected.lane.scheme if connected is not None and connected.lane is not None else ""

    @property
    def gauge(self) -> Gauge:
        """Of that path."""
        return self.gauge_of(self.connected.lane if self.connected is not None else None)

    def gauge_of(self, lane: Lane | None) -> Gauge:
        """Of the path that a lane takes."""
        return self._gauges[lane.scheme if lane is not None else ""]

    def joined(self, link: Link, guest: Guest, transports: Mapping[str, Transport]) -> Connected:
        """A link to it is up."""
        self.instance = link.theirs.instance
        schemes = ((address.partition(":")[0], address) for address in link.theirs.data)
        found = next(((scheme, address) for scheme, address in schemes if scheme in transports), None)
        lane = Lane(transports[found[0]], found[1]) if found else None
        connected = Connected(link, guest, lane)
        link.on_regions = connected.learn
        link.on_pong = self.gauge_of(lane).answered
        self._links.append(connected)
        return connected

    def parted(self, connected: Connected) -> None:
        """The link ended: what it still brought is given up."""
        self._links.remove(connected)
        self.counters.pages_out += connected.guest.pages
        self.trouble = connected.link.ended
        if connected.lane is not None:
            connected.lane.close()

    def succeeded(self) -> None:
        """It did what it should."""
        self.breaker.succeeded()

    def failed(self, why: str) -> None:
        """It did not."""
        self.trouble = why
        self.counters.failures += 1
        self.breaker.failed(time.monotonic())

    def stats(self) -> PeerStats:
        """For people and for the estimate of what a pull costs."""
        gauge, count = self.gauge, self.counters
        return PeerStats(
            address=self.address, instance=self.instance, state=self._state(), path=self.scheme,
            latency=gauge.latency, bandwidth=gauge.bandwidth,
            pages_in=count.pages_in, bytes_in=count.bytes_in,
            pages_out=count.pages_out + sum(each.guest.pages for each in self._links),
            bad_pages=count.bad_pages, failures=count.failures, trouble=self.trouble[:MOST_TROUBLE],
        )  # fmt: skip

    def _state(self) -> str:
        if self.myself:
            return "myself"
        if self.connected is None:
            return "connecting" if self.static else "gone"
        return "resting" if self.breaker.resting(time.monotonic()) else "connected"
