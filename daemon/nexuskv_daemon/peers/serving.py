"""What this host answers a peer: how far pages are resident, and where pinned ones lie.

Owns the sessions that a link has with the core, one a tenant that the peer may see, and which regions it was told. When
the link ends they end, and with them its pins. Knows nothing of how pages then move.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from nexuskv import contract
from nexuskv.contract import Descriptor
from nexuskv.contract.blocks import Blocks, blocks_of, cut
from nexuskv.contract.tenants import TENANT_URI
from nexuskv.errors import BadRequest, NotPermitted
from nexuskv.protocol import messages as m
from nexuskv.protocol.fetches import BlockName
from nexuskv_daemon.core import peering
from nexuskv_daemon.core.slots import segment_of
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.checksums import Summer
from nexuskv_daemon.peers.door import Door
from nexuskv_daemon.peers.link import Link
from nexuskv_daemon.peers.local import LocalSession
from nexuskv_daemon.peers.memory import Mappings

MOST_OFFERS = 8
Take = Callable[[Link, p.Offer], Awaitable[p.Taken]]
"""Pulls what a peer offers."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What all links serve from, and by which `schemes`; `take` pulls what a peer offers."""

    door: Door
    mappings: Mappings
    summer: Summer
    take: Take
    schemes: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Opened:
    session: LocalSession
    descriptor: Descriptor


class Guest:
    """One link's sessions."""

    def __init__(self, serving: Serving, link: Link) -> None:
        self.pages = 0
        self._serving = serving
        self._link = link
        self._sessions: dict[str, LocalSession] = {}
        self._opened: dict[int, _Opened] = {}
        self._told: set[int] = set()
        self._offers = 0
        self._pins: dict[int, tuple[LocalSession, int]] = {}

    async def serve(self, request: p.Request) -> p.AnyMessage | None:
        """Answers one request. Raises NexusError for a refusal."""
        match request:
            case p.Open():
                return await self._open(request)
            case m.Measure():
                return await self._measure(request)
            case p.Pin():
                return await self._pin(request)
            case p.PinBlocks():
                return await self._pin_blocks(request)
            case p.Release():
                self._release(request.pin)
            case p.Offer():
                self._permit(request.tenant)
                self._refuse_more_offers()
                self._serving.door.start(self._accept(request))
            case p.Ping():
                return p.Pong(request.id)
        return None

    def leave(self) -> None:
        """The link ended."""
        for session in self._sessions.values():
            session.leave()
        self._sessions.clear()

    async def _open(self, request: p.Open) -> p.Opened:
        self._permit(request.tenant)
        session = self._session(request.tenant)
        found = await session.ask(peering.Resolve(session.id(), request.digest), peering.Resolved)
        if found.arena:
            self._opened[found.arena] = _Opened(session, contract.decode(found.descriptor))
        return p.Opened(request.id, found.arena, found.descriptor)

    async def _measure(self, request: m.Measure) -> m.Measured:
        session = self._at(request.arena).session
        found = await session.ask(m.Measure(session.id(), request.arena, request.keys), m.Measured)
        return msgspec.structs.replace(found, id=request.id)

    async def _pin(self, request: p.Pin) -> p.Pinned:
        arena = self._at(request.arena)
        async with self._held(request, request.keys) as served:
            checksums = await self._summed(request, arena, served)
            pages = await self._pages(served.handles, checksums)
        self.pages += len(pages)
        return p.Pinned(request.id, served.start, pages)

    async def _pin_blocks(self, request: p.PinBlocks) -> p.PinnedBlocks:
        blocks = blocks_of(self._at(request.arena).descriptor)
        layer = blocks.layer(request.layer)
        keys = list(dict.fromkeys(each.page for each in request.wanted))
        async with self._held(request, keys) as served:
            handles = dict(zip(keys, served.handles, strict=False))  # attention: what is there comes first
            found = await self._blocks(blocks, layer, request.wanted, handles)
        self.pages += len(found)
        return p.PinnedBlocks(request.id, found)

    async def _blocks(
        self, blocks: Blocks, layer: int, wanted: list[BlockName], handles: Mapping[bytes, int]
    ) -> list[p.RemoteBlock]:
        """Where blocks stand, up to the first that is not there. Raises KeyError where memory is not mapped."""
        mappings, page_bytes = self._serving.mappings, blocks.parent.page_bytes
        found: list[tuple[int, int]] = []
        cuts: list[memoryview] = []
        for each in wanted:
            if each.page not in handles:
                break
            page = mappings.page(handles[each.page], page_bytes)
            place = blocks.place(page, layer, each.number)
            if place is None:
                break
            found.append((handles[each.page], place))
            cuts.append(cut(page, blocks.extents(layer, place)))
        sums = await self._serving.summer.sums(cuts)
        await self._tell_regions({segment_of(handle) for handle, _ in found} - self._told)
        return [
            p.RemoteBlock(*mappings.place(handle), place, checksum.to_bytes(8, "little"))
            for (handle, place), checksum in zip(found, sums, strict=True)
        ]

    @contextlib.asynccontextmanager
    async def _held(self, request: p.Pin | p.PinBlocks, keys: list[bytes]) -> AsyncIterator[peering.Served]:
        """Pins pages, under the request's id; what comes of them inside may be a KeyError for want of a mapping."""
        if request.id in self._pins:
            raise BadRequest(f"pin {request.id} is held already: a pin is named by its request's id")
        session = self._at(request.arena).session
        asked = peering.Serve(session.id(), request.arena, keys, whole=False)
        served = await session.ask(asked, peering.Served)
        if served.hit:
            self._pins[request.id] = session, served.hit
        try:
            yield served
        except KeyError:
            self._release(request.id)
            raise BadRequest(
                "these pages cannot be mapped for peers just now: compute them instead"
            ) from None

    def _release(self, pin: int) -> None:
        """Ends a hit; there is none when nothing was pinned."""
        if pin in self._pins:
            session, hit = self._pins.pop(pin)
            session.tell(m.Release(0, [hit]))

    async def _summed(self, request: p.Pin, arena: _Opened, served: peering.Served) -> list[int]:
        """Checksums of what is pinned; those made now are noted with the entries."""
        lacking = [place for place, known in enumerate(served.checksums) if not known]
        if not lacking:
            return served.checksums
        mappings = self._serving.mappings
        pages = [mappings.page(served.handles[place], arena.descriptor.page_bytes) for place in lacking]
        made = await self._serving.summer.sums(pages)
        keys = [request.keys[served.start + place] for place in lacking]
        arena.session.tell(peering.NoteChecksums(0, request.arena, keys, made))
        fresh = dict(zip(lacking, made, strict=True))
        return [known or fresh[place] for place, known in enumerate(served.checksums)]

    async def _pages(self, handles: list[int], checksums: list[int]) -> list[p.RemotePage]:
        await self._tell_regions({segment_of(handle) for handle in handles} - self._told)
        places = [self._serving.mappings.place(handle) for handle in handles]
        return [
            p.RemotePage(segment, offset, checksum.to_bytes(8, "little"))
            for (segment, offset), checksum in zip(places, checksums, strict=True)
        ]

    async def _tell_regions(self, segments: set[int]) -> None:
        """Of the tenants' memory that the peer may see and only by what it can use: a device pins what it serves."""
        usable = {address.partition(":")[0] for address in self._link.theirs.data} | {"tcp"}
        for scheme in sorted(self._serving.schemes & usable):
            found = [await self._serving.mappings.region(segment, scheme) for segment in sorted(segments)]
            regions = [region for region in found if region is not None]
            if regions:
                self._link.tell(p.Regions(0, scheme, regions))
        self._told |= segments

    def _refuse_more_offers(self) -> None:
        if self._offers >= MOST_OFFERS:
            raise BadRequest(f"{MOST_OFFERS} offers of yours are being pulled: wait for one")
        self._offers += 1

    async def _accept(self, offer: p.Offer) -> None:
        try:
            self._link.tell(await self._serving.take(self._link, offer))
        finally:
            self._offers -= 1

    def _permit(self, tenant: str) -> None:
        if tenant not in self._link.tenants:
            raise NotPermitted(
                f"your certificate does not name tenant {tenant!r}: it needs the subject alternative name "
                f"URI:{TENANT_URI}{tenant}"
            )

    def _session(self, tenant: str) -> LocalSession:
        session = self._sessions.get(tenant)
        if session is None:
            session = self._sessions[tenant] = LocalSession(
                self._serving.door, self._serving.mappings, tenant
            )
        return session

    def _at(self, arena: int) -> _Opened:
        try:
            return self._opened[arena]
        except KeyError:
            raise BadRequest(f"arena {arena} is not open on this link: open it first") from None
