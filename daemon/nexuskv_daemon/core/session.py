"""What one connection holds: its tenant, arenas, hits, reservations, branches, and the segments it has descriptors of.

Owns the bookkeeping that must be undone when the connection ends. Knows nothing of sockets.
"""

from dataclasses import dataclass, field

from nexuskv.errors import BadRequest, NotReserved, UnknownDescriptor
from nexuskv.protocol.messages import SLOT_BITS, Segment
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.groups import GroupReservation
from nexuskv_daemon.core.holdings import Holdings
from nexuskv_daemon.core.memory import Memory
from nexuskv_daemon.core.reservation import Reservation


@dataclass(slots=True, eq=False)
class Session:
    """One connection. `operator` sees and evicts what belongs to other tenants too."""

    number: int
    tenant: str
    operator: bool
    greeted: bool = False
    attached: bool = False
    arenas: dict[int, Arena] = field(default_factory=dict)
    hits: dict[int, tuple[Arena, list[Entry]]] = field(default_factory=dict)
    reservations: dict[int, Reservation | GroupReservation] = field(default_factory=dict)
    readable: set[int] = field(default_factory=set)
    writable: set[int] = field(default_factory=set)
    gone: list[int] = field(default_factory=list)
    branches: Holdings = field(default_factory=Holdings)
    next_hit: int = 1

    def arena(self, number: int) -> Arena:
        """An arena this session registered. Raises UnknownDescriptor."""
        try:
            return self.arenas[number]
        except KeyError:
            raise UnknownDescriptor(
                f"arena {number} is not registered in this session: register the descriptor"
            ) from None

    def reservation(self, number: int) -> Reservation | GroupReservation:
        """A reservation of this session. Raises NotReserved, also for another session's."""
        try:
            return self.reservations[number]
        except KeyError:
            raise NotReserved(
                f"reservation {number} is not held by this session: never made here, or ended"
            ) from None

    def hold(self, arena: Arena, entries: list[Entry]) -> int:
        """Notes a hit. Returns its number; 0 for an empty one, which needs no release."""
        if not entries:
            return 0
        hit = self.next_hit
        self.next_hit += 1
        self.hits[hit] = (arena, entries)
        return hit

    def release(self, hit: int) -> None:
        """Ends a hit. Raises BadRequest for one that is not open."""
        try:
            arena, entries = self.hits.pop(hit)
        except KeyError:
            raise BadRequest(f"hit {hit} is not open in this session: release each hit once") from None
        arena.unpin(entries)

    def end(self) -> list[Reservation | GroupReservation]:
        """Ends all pins. Returns what was being written."""
        for arena, entries in self.hits.values():
            arena.unpin(entries)
        self.hits.clear()
        return list(self.reservations.values())

    def introduce(
        self, handles: list[int], memory: Memory, *, writable: bool, arena: Arena | None = None
    ) -> list[Segment]:
        """Segments of `handles` that this session has no descriptor of yet, `writable` or to read; it gets them now.

        Who may write gets one to read as well: that is what it reads with when the daemon is away. `arena` is
        theirs, if they are all of one: a session often has all its segments, seen quicker than handle by handle.
        """
        if arena is not None and len(arena.pool.segments) <= len(handles):
            every = arena.pool.segments.keys()
            if every <= self.readable and (not writable or every <= self.writable):
                return []
        segments = {handle >> SLOT_BITS for handle in handles}
        given = self._give(segments, memory, writable=True) if writable else []
        return given + self._give(segments, memory, writable=False)

    def _give(self, segments: set[int], memory: Memory, *, writable: bool) -> list[Segment]:
        mapped = self.writable if writable else self.readable
        fresh = segments - mapped
        if not fresh:
            return []
        mapped |= fresh
        records = [memory.ready[number] for number in sorted(fresh)]
        return [Segment(r.number, r.arena.number, r.slots, r.arena.slot_bytes, writable) for r in records]

    def forget(self, segment: int) -> None:
        """A segment is gone; the client hears of it before its next reply."""
        if segment in self.readable or segment in self.writable:
            self.readable.discard(segment)
            self.writable.discard(segment)
            self.gone.append(segment)
