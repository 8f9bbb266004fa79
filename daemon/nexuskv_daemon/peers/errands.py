"""What clients of this host want of others, and what others want this host to fetch.

Owns the translation of requests into fetches, and of what came of them into replies. How pages are found and moved is
others' affair.
"""

from __future__ import annotations

import asyncio
import logging
import time

from nexuskv import contract
from nexuskv.contract.blocks import blocks_of
from nexuskv.errors import BadRequest, NexusError, RemoteError
from nexuskv.protocol import hosts as h
from nexuskv.protocol import messages as m
from nexuskv.protocol import offers as o
from nexuskv.protocol.cost import ComputeCost
from nexuskv.protocol.fetches import FetchBlocks, FetchGroup
from nexuskv_daemon import outside
from nexuskv_daemon.core.effects import Abroad
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.asking import Pages, SelectedBlocks
from nexuskv_daemon.peers.directory import Directory
from nexuskv_daemon.peers.door import Door
from nexuskv_daemon.peers.fetching import Fetcher, Wanted
from nexuskv_daemon.peers.grounds import Grounds
from nexuskv_daemon.peers.group_fetching import GroupFetcher, WantedGroup
from nexuskv_daemon.peers.landing import Lander
from nexuskv_daemon.peers.link import Link
from nexuskv_daemon.peers.memory import Mappings
from nexuskv_daemon.peers.neighbours import Neighbours
from nexuskv_daemon.peers.peer import Peer
from nexuskv_daemon.peers.seeking import Candidate, Question, Seeker

log = logging.getLogger(__name__)
LEAST_SECONDS = 0.001
AT_ONCE = 1024
"""Fetches and pushes that are under way: a client that prefetches without end is a fault of its."""
MOST_SHOWN = 400
"""Peers that a reply describes: it must fit a message."""
SPARE_SECONDS = 0.2
"""More than the peer is given, for its answer's way back."""


class Errands:
    """`employ` comes before everything else."""

    def __init__(self, door: Door, mappings: Mappings, grounds: Grounds) -> None:
        self._door = door
        self._mappings = mappings
        self._grounds = grounds
        self._fetcher: Fetcher
        self._groups: GroupFetcher
        self._neighbours: Neighbours
        self._running = 0
        self._directory: Directory | None = None

    def employ(
        self,
        seeker: Seeker,
        lander: Lander,
        fetcher: Fetcher,
        neighbours: Neighbours,
        directory: Directory | None,
    ) -> None:
        """Those who do the work: they in turn were made with what offers go to."""
        self._seeker, self._fetcher = seeker, fetcher
        self._groups = GroupFetcher(seeker, lander, fetcher, self._grounds)
        self._neighbours, self._directory = neighbours, directory

    async def perform(self, effect: Abroad) -> None:
        """Does what a client asked for, and answers it whatever happens."""
        self._running += 1
        try:
            reply = await self._reply(effect)
        except NexusError as error:
            reply = m.Refused(effect.request.id, error.code, str(error))
        except Exception:
            log.exception("a fetch or push failed by a fault of this daemon")
            reply = m.Refused(effect.request.id, RemoteError.code, "a fault of the daemon: see its log")
        finally:
            self._running -= 1
        if effect.request.id:
            inside = self._door.inside
            self._door.call(lambda: inside.reply(effect.session, reply))

    def dropped(self, segment: int) -> None:
        """A segment is gone: peers must not read it any more."""
        self._mappings.dropped(segment)

    def changed(self, pages: list[bytes], *, there: bool) -> None:
        """Pages of this host became readable, or went."""
        if self._directory is not None:
            self._directory.changed(pages, there=there)

    async def _reply(self, effect: Abroad) -> m.Message:
        request = effect.request
        if isinstance(request, h.GetPeers):
            stats = [peer.stats() for peer in self._neighbours.by_use()[:MOST_SHOWN]]
            return h.Peers(
                request.id, stats, self._directory.state if self._directory is not None else "none"
            )
        if self._running > AT_ONCE:
            return outside.answer(request, f"{AT_ONCE} fetches are under way: ask again later")
        descriptors = effect.descriptors
        match request:
            case h.Push():
                return await self._push(effect.tenant, descriptors[0], request)
            case FetchBlocks():
                return await self._fetch_blocks(effect.tenant, descriptors[0], request)
            case FetchGroup():
                return await self._fetch_group(effect.tenant, descriptors, request)
            case o.GetOffers():
                return await self._offers(effect.tenant, descriptors[0], request)
            case h.Fetch():
                return await self._fetch(effect.tenant, descriptors[0], request)

    async def _fetch(self, tenant: str, descriptor: contract.Descriptor, request: h.Fetch) -> h.Fetched:
        if not request.keys:
            return h.Fetched(request.id, 0, 0, "", "")
        ground = await self._grounds.known(tenant, descriptor)
        ask = Pages(descriptor)
        wanted = Wanted(ground, ask, request.keys, request.parent, request.before, request.cost)
        came = await self._fetcher.fetch(wanted, _until(request.milliseconds))
        return h.Fetched(request.id, came.pages, came.nbytes, came.source, came.reason)

    async def _offers(self, tenant: str, descriptor: contract.Descriptor, request: o.GetOffers) -> o.Offers:
        question = Question(tenant, descriptor, request.keys, _until(request.milliseconds))
        return o.Offers(request.id, [_offer(each) for each in await self._seeker.seek(question)])

    async def _fetch_blocks(
        self, tenant: str, descriptor: contract.Descriptor, request: FetchBlocks
    ) -> h.Fetched:
        if not request.wanted:
            return h.Fetched(request.id, 0, 0, "", "")
        blocks = blocks_of(descriptor)
        ground = await self._grounds.registered(tenant, blocks.descriptor)
        ask = SelectedBlocks(descriptor, blocks, blocks.layer(request.layer))
        wanted = Wanted(ground, ask, ask.name(request.wanted), b"", 0, ComputeCost())
        came = await self._fetcher.fetch(wanted, _until(request.milliseconds))
        return h.Fetched(request.id, came.pages, came.nbytes, came.source, came.reason)

    async def _fetch_group(
        self, tenant: str, descriptors: list[contract.Descriptor], request: FetchGroup
    ) -> h.Fetched:
        keys = [member.keys for member in request.members]
        parents = [member.parent for member in request.members]
        wanted = WantedGroup(tenant, descriptors, keys, parents, request.boundaries)
        came = await self._groups.fetch(wanted, _until(request.milliseconds))
        return h.Fetched(request.id, came.pages, came.nbytes, came.source, came.reason)

    async def _push(self, tenant: str, descriptor: contract.Descriptor, request: h.Push) -> h.Pushed:
        seconds = request.milliseconds / 1000
        until = _until(request.milliseconds)
        peer = self._neighbours.named(request.peer)
        if peer is None and request.peer.startswith("tcp:"):
            peer = await self._neighbours.reach(request.peer, seconds)
        if peer is None or peer.connected is None:
            raise BadRequest(
                f"{request.peer!r} is no connected peer: name its address or instance as `nexuskv peers` does"
            )
        link = peer.connected.link
        left = max(LEAST_SECONDS, until - time.monotonic())
        encoded, milliseconds = contract.encode(descriptor), int(left * 1000)
        offer = p.Offer(link.id(), tenant, encoded, request.keys, request.parent, milliseconds)
        try:
            async with asyncio.timeout(left + SPARE_SECONDS):
                taken = await link.ask(offer, p.Taken)
        except TimeoutError:
            return h.Pushed(request.id, 0, f"{peer.address} did not answer in time")
        return h.Pushed(request.id, taken.pages, taken.reason)

    async def take(self, link: Link, offer: p.Offer) -> p.Taken:
        """Pulls what a peer offers."""
        peer = self._peer_of(link)
        if peer is None or not offer.keys:
            return p.Taken(offer.id, 0, "the link is gone" if offer.keys else "")
        try:
            descriptor = contract.decode(offer.descriptor)
            ground = await self._grounds.registered(offer.tenant, descriptor)
            wanted = Wanted(ground, Pages(descriptor), offer.keys, offer.parent, 0, ComputeCost())
            came = await self._fetcher.fetch(wanted, _until(offer.milliseconds), peer)
            there = await ground.boundary(offer.keys)
        except NexusError as error:
            return p.Taken(offer.id, 0, str(error)[:300])
        return p.Taken(offer.id, there, came.reason[:300])

    def _peer_of(self, link: Link) -> Peer | None:
        return next((peer for peer in self._neighbours.peers.values() if peer.has(link)), None)


def _offer(candidate: Candidate) -> o.PeerOffer:
    peer, path = candidate.peer, candidate.peer.path
    gauge = peer.gauge
    name = path.name if path is not None else ""
    return o.PeerOffer(peer.address, name, candidate.stop, gauge.latency, gauge.bandwidth)


def _until(milliseconds: int) -> float:
    return time.monotonic() + milliseconds / 1000
