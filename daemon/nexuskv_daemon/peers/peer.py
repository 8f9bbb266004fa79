"""One other host, as this one knows it: its link, the ways that its pages come, how quick and how reliable it is.

Owns what was learnt on a link, and the peer's figures. Knows nothing of the core, nor of how a link came to be.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nexuskv import contract
from nexuskv.contract import Descriptor
from nexuskv.errors import DescriptorError, NexusError
from nexuskv.protocol.hosts import PathStats, PeerStats
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.breaker import Breaker
from nexuskv_daemon.peers.gauge import Gauge
from nexuskv_daemon.peers.lanes import Lane
from nexuskv_daemon.peers.link import Link
from nexuskv_daemon.peers.memory import Mappings
from nexuskv_daemon.peers.serving import Guest
from nexuskv_daemon.peers.ways import Path, Ways, ways_to
from nexuskv_transport.base import Transport

log = logging.getLogger(__name__)
MOST_TROUBLE = 200
"""Characters of it that are shown."""


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
    """A link, and what was learnt on it: nothing of that outlives it."""

    link: Link
    guest: Guest
    ways: Ways
    arenas: dict[tuple[str, bytes], int] = field(default_factory=dict)

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
        self._paths: dict[str, Path] = {}
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
            each.ways.close()

    @property
    def path(self) -> Path | None:
        """What its pages come over, None while there is nothing."""
        way = self.connected.ways.taken if self.connected is not None else None
        return way.path if way is not None else None

    @property
    def gauge(self) -> Gauge:
        """Of that path."""
        return self.path.gauge if self.path is not None else Gauge()

    def joined(
        self, link: Link, guest: Guest, transports: Mapping[str, Transport], memory: Mappings
    ) -> Connected:
        """A link to it is up."""
        self.instance = link.theirs.instance
        theirs = _best_first(link.theirs.data)
        lanes = [Lane(transports[scheme], theirs[scheme]) for scheme in theirs if scheme in transports]
        self._paths.update(
            (lane.scheme, Path(lane.scheme)) for lane in lanes if lane.scheme not in self._paths
        )
        connected = Connected(link, guest, ways_to(self.address, lanes, self._paths, memory))
        link.on_regions = connected.ways.learn
        link.on_pong = self._answered
        self._links.append(connected)
        self._say_what_lacks(transports, theirs)
        return connected

    def _answered(self, seconds: float) -> None:
        """Each pull, whatever its path, begins with a message over the link."""
        for path in self._paths.values():
            path.gauge.answered(seconds)

    def _say_what_lacks(self, ours: Iterable[str], theirs: Iterable[str]) -> None:
        for schemes, who in ((set(ours) - set(theirs), "the peer"), (set(theirs) - set(ours), "this host")):
            for scheme in schemes - {"tcp"}:
                path = self._paths.setdefault(scheme, Path(scheme))
                path.trouble = f"{who} has no {scheme}"
                log.info("%s: pages do not come over %s: %s", self.address, scheme, path.trouble)

    def parted(self, connected: Connected) -> None:
        """The link ended: what it still brought is given up."""
        self._links.remove(connected)
        self.counters.pages_out += connected.guest.pages
        self.trouble = connected.link.ended
        connected.ways.close()

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
            address=self.address, instance=self.instance, state=self._state(),
            path=self.path.name if self.path is not None else "",
            latency=gauge.latency, bandwidth=gauge.bandwidth,
            pages_in=count.pages_in, bytes_in=count.bytes_in,
            pages_out=count.pages_out + sum(each.guest.pages for each in self._links),
            bad_pages=count.bad_pages, failures=count.failures, trouble=self.trouble[:MOST_TROUBLE],
            paths=[_stats(path) for path in self._paths.values()],
        )  # fmt: skip

    def _state(self) -> str:
        if self.myself:
            return "myself"
        if self.connected is None:
            return "connecting" if self.static else "gone"
        return "resting" if self.breaker.resting(time.monotonic()) else "connected"


def _best_first(addresses: Iterable[str]) -> dict[str, str]:
    """The first address of each scheme, RDMA before all others."""
    found: dict[str, str] = {}
    for address in addresses:
        found.setdefault(address.partition(":")[0], address)
    return dict(sorted(found.items(), key=lambda each: each[0] != "rdma"))


def _stats(path: Path) -> PathStats:
    gauge = path.gauge
    return PathStats(path.name, gauge.latency, gauge.bandwidth, path.nbytes, path.trouble[:MOST_TROUBLE])
