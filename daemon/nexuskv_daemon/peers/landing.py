"""Pages of a peer, or parts of them, into slots of this host: reserve, pull, check, commit.

Owns that order, and the rule that nothing is committed that is not byte for byte what the peer said it would be. A
slot is given back only when its transport has let go of it. Knows nothing of who asked for the pages, or why from
this peer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nexuskv.contract import AllPages, Descriptor
from nexuskv.contract.blocks import Extent
from nexuskv.protocol import messages as m
from nexuskv_daemon.core import peering
from nexuskv_daemon.core.slots import segment_of
from nexuskv_daemon.peers.checksums import Summer
from nexuskv_daemon.peers.local import LocalSession
from nexuskv_daemon.peers.memory import Mappings
from nexuskv_daemon.peers.peer import Connected
from nexuskv_daemon.peers.ways import Load, Spot
from nexuskv_transport.base import Outcome

BUSY = "somebody here is computing the next page"


@dataclass(frozen=True, slots=True)
class Ground:
    """Where pages land: a tenant's arena, through the session that owns the slots until they are committed."""

    session: LocalSession
    arena: int
    descriptor: Descriptor

    @property
    def chained(self) -> bool:
        """Whether a page is of use only below the one before it."""
        return isinstance(self.descriptor.reuse, AllPages)

    async def boundary(self, keys: list[bytes]) -> int:
        """How far `keys` are restorable here, in pages."""
        asked = m.Measure(self.session.id(), self.arena, keys)
        return (await self.session.ask(asked, m.Measured)).stop


class Batch(NamedTuple):
    """Keys to pull together, and where their pages lie once the peer has them pinned; `parent` is the key before."""

    keys: list[bytes]
    places: list[Place]
    parent: bytes

    def pinned(self, start: int, places: list[Place]) -> Batch:
        """What of it the peer pinned: pages from `start` on."""
        return Batch(self.keys[start : start + len(places)], places, self.parent)


class Place(NamedTuple):
    """Where a page of the peer lies, which of its bytes make up the page here, and the checksum of the latter."""

    region: int
    offset: int
    checksum: int
    extents: tuple[Extent, ...]

    def spots(self, slot: memoryview) -> list[Spot]:
        """What to pull into a slot. Where the extents leave gaps, it gets zeros: they are summed too."""
        if len(self.extents) > 1:
            slot[:] = bytes(slot.nbytes)
        return [
            Spot(self.region, self.offset + offset, slot[into : into + nbytes])
            for offset, into, nbytes in self.extents
        ]


class Filled(NamedTuple):
    """Places in a reservation of pages that are right, with their checksums; how many came wrong, and whose fault it
    is.

    `blame` is what the peer did wrong, `reason` what this host lacks; both empty when all are right.
    """

    right: dict[int, int]
    bad: int
    blame: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Landed:
    """What came of a batch: pages and bytes committed, and how many leading keys of it are resident now.

    `bad` pages had another checksum than was told; `reason` says why it is not all, `blame` as far as it is the peer's.
    """

    pages: int
    nbytes: int
    reached: int
    bad: int
    blame: str
    reason: str


class GroupBatch(NamedTuple):
    """One member's own pages of a boundary: their keys, where they lie at the peer, and the key before them."""

    ground: Ground
    keys: list[bytes]
    places: list[Place]
    parent: bytes


class Lander:
    """Lands batches. What it awaits ends by itself: transports by their deadline, the core as soon as it can."""

    def __init__(self, mappings: Mappings, summer: Summer) -> None:
        self._mappings = mappings
        self._summer = summer

    async def land(self, ground: Ground, batch: Batch, source: Connected, deadline: float) -> Landed:
        """Pulls what is absent of a batch. Raises Declined when there is no room."""
        session = ground.session
        reserved = await session.ask(
            m.Reserve(session.id(), ground.arena, batch.keys, batch.parent), m.Reserved
        )
        wanted = [batch.places[position] for position in reserved.positions]
        committed = 0
        try:
            filled = await self._fill(ground, reserved.handles, wanted, source, deadline)
            committed = _commit(ground, batch, reserved, filled.right)
        finally:
            if committed < len(reserved.positions):
                session.tell(m.Abort(0, reserved.reservation))
        busy = BUSY if reserved.busy else ""
        return Landed(
            committed, committed * ground.descriptor.page_bytes, _reached(batch, reserved, committed),
            filled.bad, filled.blame, filled.blame or filled.reason or busy,
        )  # fmt: skip

    async def land_boundary(self, parts: Sequence[GroupBatch], source: Connected, deadline: float) -> Landed:
        """Pulls what is absent of one boundary, and commits all of it or nothing. Raises Declined.

        All grounds are of one session.
        """
        session = parts[0].ground.session
        asked = [m.Part(part.ground.arena, part.keys, part.parent) for part in parts]
        reserved = await session.ask(m.ReserveGroup(session.id(), 1, asked), m.ReservedGroup)
        if not reserved.reservation:
            return Landed(0, 0, 0, 0, "", BUSY if reserved.busy else "")
        committed = False
        try:
            filled = [
                await self._fill(
                    part.ground, handles, [part.places[at] for at in positions], source, deadline
                )
                for part, positions, handles in zip(parts, reserved.positions, reserved.handles, strict=True)
            ]
            committed = all(
                len(each.right) == len(own) for each, own in zip(filled, reserved.handles, strict=True)
            )
            if committed:
                _commit_boundary(parts, reserved, filled)
        finally:
            if not committed:
                session.tell(m.Abort(0, reserved.reservation))
        return _boundary_landed(parts, filled, committed=committed)

    async def _fill(
        self, ground: Ground, handles: list[int], remote: list[Place], source: Connected, deadline: float
    ) -> Filled:
        """Pulls into slots, and compares checksums."""
        try:
            slots = [self._mappings.page(handle, ground.descriptor.page_bytes) for handle in handles]
        except KeyError:
            return Filled({}, 0, reason="the slots cannot be mapped for peers just now")
        spots = [place.spots(slot) for place, slot in zip(remote, slots, strict=True)]
        load = Load(
            ground.session.tenant, ground.descriptor, frozenset(map(segment_of, handles)),
            [spot for each in spots for spot in each],
        )  # fmt: skip
        started = time.monotonic()
        ends = iter(await source.ways.pull(load, deadline))
        seconds = time.monotonic() - started
        outcomes = [_worst([next(ends) for _ in each]) for each in spots]
        came = [place for place, outcome in enumerate(outcomes) if outcome is Outcome.OK]
        sums = await self._summer.sums([slots[place] for place in came])
        right = {
            place: found for place, found in zip(came, sums, strict=True) if found == remote[place].checksum
        }
        bad = len(came) - len(right)
        return Filled(right, bad, _blame(outcomes, bad, source, seconds))


def _commit(ground: Ground, batch: Batch, reserved: m.Reserved, right: dict[int, int]) -> int:
    """Commits the right pages, of a chain those before the first gap. Returns how many."""
    places = sorted(right)
    if ground.chained:
        places = [place for nth, place in enumerate(places) if nth == place]
    if not places:
        return 0
    keys = [batch.keys[reserved.positions[place]] for place in places]
    ground.session.tell(peering.NoteChecksums(0, ground.arena, keys, [right[place] for place in places]))
    everything = len(places) == len(reserved.positions)
    chosen = [] if everything else places
    ground.session.tell(m.Commit(0, reserved.reservation, chosen, rest=everything))
    return len(places)


def _commit_boundary(
    parts: Sequence[GroupBatch], reserved: m.ReservedGroup, filled: Sequence[Filled]
) -> None:
    session = parts[0].ground.session
    for part, positions, each in zip(parts, reserved.positions, filled, strict=True):
        keys = [part.keys[position] for position in positions]
        session.tell(
            peering.NoteChecksums(0, part.ground.arena, keys, [each.right[at] for at in range(len(keys))])
        )
    session.tell(m.Commit(0, reserved.reservation, [], rest=True))


def _boundary_landed(parts: Sequence[GroupBatch], filled: Sequence[Filled], *, committed: bool) -> Landed:
    pages = [len(each.right) * committed for each in filled]
    nbytes = sum(count * part.ground.descriptor.page_bytes for count, part in zip(pages, parts, strict=True))
    blame = next((each.blame for each in filled if each.blame), "")
    reason = blame or next((each.reason for each in filled if each.reason), "")
    return Landed(sum(pages), nbytes, 0, sum(each.bad for each in filled), blame, reason)


def _reached(batch: Batch, reserved: m.Reserved, committed: int) -> int:
    if committed < len(reserved.positions):
        return reserved.positions[committed]
    return len(batch.keys) - reserved.busy


def _worst(outcomes: list[Outcome]) -> Outcome:
    """A page has come when all of its pieces have."""
    return next((outcome for outcome in outcomes if outcome is not Outcome.OK), Outcome.OK)


def _blame(outcomes: Sequence[Outcome], bad: int, source: Connected, seconds: float) -> str:
    if bad:
        return f"{bad} pages came with another checksum than was told"
    ended = next((outcome for outcome in outcomes if outcome is not Outcome.OK), None)
    if ended is None:
        return ""
    detail = f": {source.ways.reason}" if source.ways.reason else ""
    return f"pulling ended as {ended.value} after {seconds:.1f} s{detail}"
