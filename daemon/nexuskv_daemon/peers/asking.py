"""How a peer is asked for pages: for whole ones by their keys, or for blocks, each of which becomes a page here.

Owns the questions, and what their answers say of places in the peer's memory. Moves nothing, and knows nothing of who
wants the pages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from nexuskv.contract import Descriptor
from nexuskv.contract.blocks import Blocks, Extent, block_key
from nexuskv.protocol.fetches import BlockName
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.landing import Place
from nexuskv_daemon.peers.peer import Connected, Unusable
from nexuskv_daemon.peers.seeking import Candidate, Question

P = TypeVar("P", p.Pinned, p.PinnedBlocks)


class Granted(NamedTuple):
    """What a peer pinned under request `pin`: places of the keys asked for, from `start` on."""

    pin: int
    start: int
    places: list[Place]

    def release(self) -> p.Release:
        """What ends it."""
        return p.Release(0, self.pin)


class Ask(Protocol):
    """One way to ask for the pages that `keys` name here."""

    def question(self, tenant: str, keys: list[bytes], until: float) -> Question:
        """Who has them?"""
        ...

    def reach(self, keys: Sequence[bytes], found: Candidate) -> Candidate:
        """The candidate that answered `question`, with `keys[start:stop]` being what it has."""
        ...

    async def pin(self, candidate: Candidate, keys: list[bytes], until: float) -> Granted:
        """Pins them there. Raises TimeoutError, LinkLost, PeerRefused, Unusable."""
        ...


@dataclass(frozen=True, slots=True)
class Pages:
    """Whole pages of a descriptor, which have one key on all hosts."""

    descriptor: Descriptor

    def question(self, tenant: str, keys: list[bytes], until: float) -> Question:
        """Who has most of them?"""
        return Question(tenant, self.descriptor, keys, until)

    def reach(self, keys: Sequence[bytes], found: Candidate) -> Candidate:
        """What it said."""
        return found

    async def pin(self, candidate: Candidate, keys: list[bytes], until: float) -> Granted:
        """Pins their longest restorable boundary."""
        link = candidate.connected.link
        pinned = await _pinned(candidate, p.Pin(link.id(), candidate.arena, keys), p.Pinned, until)
        if pinned.start + len(pinned.pages) > len(keys):
            raise Unusable("it pinned more pages than it was asked for")
        whole = (Extent(0, 0, self.descriptor.page_bytes),)
        places = [_place(candidate.connected, page, whole) for page in pinned.pages]
        return Granted(pinned.id, pinned.start, places)


@dataclass(frozen=True, slots=True)
class SelectedBlocks:
    """Blocks of pages of `parent`, by the keys that they have as pages of their own."""

    parent: Descriptor
    blocks: Blocks
    layer: int
    names: dict[bytes, BlockName] = field(default_factory=dict)

    def name(self, wanted: Sequence[BlockName]) -> list[bytes]:
        """Takes note of blocks, each once. Returns their keys."""
        fresh = {block_key(each.page, self.layer, each.number): each for each in wanted}
        self.names.update(fresh)
        return list(fresh)

    def question(self, tenant: str, keys: list[bytes], until: float) -> Question:
        """Who has the pages that they are cut from?"""
        return Question(tenant, self.parent, self._pages(keys), until)

    def reach(self, keys: Sequence[bytes], found: Candidate) -> Candidate:
        """As far as the pages that it has go."""
        there = set(self._pages(keys)[: found.stop])
        stop = next((at for at, key in enumerate(keys) if self.names[key].page not in there), len(keys))
        return Candidate(found.peer, found.connected, found.arena, 0, stop)

    async def pin(self, candidate: Candidate, keys: list[bytes], until: float) -> Granted:
        """Pins their pages; the places are those of the blocks alone."""
        link = candidate.connected.link
        wanted = [self.names[key] for key in keys]
        asked = p.PinBlocks(link.id(), candidate.arena, self.layer, wanted)
        pinned = await _pinned(candidate, asked, p.PinnedBlocks, until)
        if len(pinned.blocks) > len(keys):
            raise Unusable("it pinned more blocks than it was asked for")
        return Granted(pinned.id, 0, [self._place(candidate.connected, each) for each in pinned.blocks])

    def _pages(self, keys: Sequence[bytes]) -> list[bytes]:
        return list(dict.fromkeys(self.names[key].page for key in keys))

    def _place(self, source: Connected, told: p.RemoteBlock) -> Place:
        if told.place >= self.blocks.top_k:
            raise Unusable(f"it has block {told.place} of a page that has {self.blocks.top_k}")
        return _place(source, told, self.blocks.extents(self.layer, told.place))


async def _pinned(candidate: Candidate, asked: p.Pin | p.PinBlocks, expected: type[P], until: float) -> P:
    link = candidate.connected.link
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            return await link.ask(asked, expected)
    except TimeoutError:
        link.tell(p.Release(0, asked.id))
        raise


def _place(source: Connected, told: p.RemotePage | p.RemoteBlock, extents: tuple[Extent, ...]) -> Place:
    """Raises Unusable for a region that the peer did not tell of."""
    if not source.ways.know(told.region):
        raise Unusable(f"it pinned a page in region {told.region}, which it did not tell of")
    return Place(told.region, told.offset, int.from_bytes(told.checksum, "little"), extents)
