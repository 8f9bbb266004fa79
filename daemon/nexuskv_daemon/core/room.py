"""Finding slots for a reservation: free ones, a new segment, or somebody's old pages.

Owns the order in which room is sought: free slots; a new segment while the budget lasts; a segment of an arena that has
more than its share and colder pages, or of any arena when the own one cannot do it; eviction in the own arena.
"""

from collections.abc import Iterable

from nexuskv.errors import ArenaFull
from nexuskv_daemon.core import reclaim
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.memory import Memory, SegmentRecord


class Room:
    """Makes room within the budget.

    `planned` collects segments to make, `dropped` those that were emptied for others; the engine drains both.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.planned: list[SegmentRecord] = []
        self.dropped: list[SegmentRecord] = []

    def make(self, arena: Arena, need: int, others: Iterable[Arena], now: float) -> bool:
        """Whether `need` slots of `arena` are free now; if not, a segment is being made: ask again when it is there.

        Raises ArenaFull when nothing that may go would be enough; a reservation beyond the whole budget evicts nothing.
        """
        if len(arena.pool) >= need:
            return True
        self._refuse_hopeless(arena, need)
        if self.memory.growing(arena):
            return False
        if self._plan(arena, now) or self._take_over(arena, need, list(others), now):
            return False
        if len(arena.pool) + arena.evictable_at_most < need:
            raise self._full(arena, need)
        self.evict(arena, need - len(arena.pool))
        if len(arena.pool) < need:
            raise self._full(arena, need)
        return True

    def grow_ahead(self, arena: Arena, now: float) -> None:
        """Plans a segment before it is needed: when less than half of one is free and the budget allows."""
        typical = max(1, self.memory.segment_bytes // arena.slot_bytes)
        if len(arena.pool) * 2 < typical and not self.memory.growing(arena):
            self._plan(arena, now)

    def evict(self, arena: Arena, slots: int) -> int:
        """Evicts up to `slots` pages in the policy's order. Returns how many went."""
        for gone in range(slots):
            entry = arena.policy.victim()
            if entry is None:
                return gone
            arena.retire(entry)
        return slots

    def _plan(self, arena: Arena, now: float) -> bool:
        record = self.memory.plan(arena, now)
        if record is not None:
            self.planned.append(record)
        return record is not None

    def _refuse_hopeless(self, arena: Arena, need: int) -> None:
        if need * arena.slot_bytes > self.memory.budget:
            raise self._full(arena, need)

    def _take_over(self, arena: Arena, need: int, others: list[Arena], now: float) -> bool:
        """Empties segments of other arenas until one of `arena` fits in; none if that could not help."""
        if self.memory.resting(now):
            return False
        short = need - len(arena.pool) - arena.evictable_at_most
        donors = self._donors(arena, others, desperate=short > 0)
        chosen = [(donor, number) for donor in donors for number in reclaim.emptiable(donor)]
        left = self.memory.budget - self.memory.used
        if left + sum(self.memory.ready[number].nbytes for _, number in chosen) < short * arena.slot_bytes:
            return False
        for donor, number in chosen:
            reclaim.empty(donor, number)
            self.dropped.append(self.memory.ready[number])
            self.memory.drop(number)
            if self._plan(arena, now):
                return True
        return False

    def _donors(self, arena: Arena, others: list[Arena], *, desperate: bool) -> list[Arena]:
        """Arenas to take from, coldest first: above their share and colder than `arena`, or any in an emergency."""
        owners = [other for other in others if other is not arena and other.pool.segments]
        share = self.memory.budget // (len(owners) + 1)
        mine = arena.policy.coldest()
        if not desperate:
            if mine is None or self.memory.bytes_of(arena) >= share:
                return []
            owners = [o for o in owners if self.memory.bytes_of(o) > share and _coldness(o) < mine]
        return sorted(owners, key=_coldness)

    def _full(self, arena: Arena, need: int) -> ArenaFull:
        slot = arena.slot_bytes
        numbers = {
            "needed_bytes": need * slot,
            "free_bytes": len(arena.pool) * slot + max(0, self.memory.budget - self.memory.used),
            "pinned_bytes": (arena.pinned + len(arena.retiring)) * slot,
            "writing_bytes": len(arena.writing) * slot,
            "arena_bytes": arena.pool.capacity * slot,
            "budget_bytes": self.memory.budget,
        }
        return ArenaFull(
            f"no room for {need} pages ({numbers['needed_bytes']} bytes): {numbers['free_bytes']} bytes are free, "
            f"{numbers['pinned_bytes']} pinned, {numbers['writing_bytes']} being written, of a budget of "
            f"{self.memory.budget}. Close hits, reserve fewer pages at a time, or give nexuskvd more --memory."
            + (f" Growth failed: {self.memory.failure}" if self.memory.failure else ""),
            numbers,
        )


def _coldness(arena: Arena) -> int:
    coldest = arena.policy.coldest()
    return 0 if coldest is None else coldest
