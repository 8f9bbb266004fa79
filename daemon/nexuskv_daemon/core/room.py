"""Finding slots for a reservation: free ones, a new segment, or somebody's old pages.

Owns the order in which room is sought: free slots; a new segment while the budget lasts; a segment of an arena that has
more than its share and colder pages, or of any arena when the own one cannot do it; eviction in the own arena.
"""

from collections.abc import Iterable

from nexuskv.errors import ArenaFull
from nexuskv_daemon.core import reclaim
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.memory import Memory, SegmentRecord

SHRINK_SECONDS = 1.0
"""Between two tries to get back to the budget, when an earlier daemon left more and readers held it."""


class Room:
    """Makes room within the budget.

    `planned` collects segments to make, `dropped` those that were emptied for others; the engine drains both.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.planned: list[SegmentRecord] = []
        self.dropped: list[SegmentRecord] = []
        self._next_shrink = 0.0

    def make(self, arena: Arena, need: int, others: Iterable[Arena], now: float) -> bool:
        """Whether `need` slots of `arena` are free now; if not, a segment is being made: ask again when it is there.

        Raises ArenaFull when nothing that may go would be enough; a reservation beyond the whole budget evicts nothing.
        """
        self._keep_to_budget(others, now)
        if len(arena.pool) >= need:
            return True
        arena.reclaim()
        if len(arena.pool) >= need:
            return True
        self._refuse_hopeless(arena, need)
        if self.memory.growing(arena):
            return False
        if self._plan(arena, now) or self._take_over(
            arena, need, list(others), now, own=arena.evictable_at_most
        ):
            return False
        if len(arena.pool) + arena.evictable_at_most < need:
            raise self._full(arena, need)
        return self._evict_for(arena, need, list(others), now)

    def _evict_for(self, arena: Arena, need: int, others: list[Arena], now: float) -> bool:
        """As `make`, by what may go of its own; of others when that is less than it looked like."""
        while len(arena.pool) < need:
            if self.evict(arena, need - len(arena.pool)):
                continue
            # What is left of its own are pages that others hang from, or that somebody reads.
            if self._take_over(arena, need, others, now, own=0):
                return False
            raise self._full(arena, need)
        return True

    def _keep_to_budget(self, arenas: Iterable[Arena], now: float) -> None:
        if self.memory.used > self.memory.budget and now >= self._next_shrink:
            self._next_shrink = now + SHRINK_SECONDS  # to shrink is to walk over all entries
            self.shrink(arenas)

    def grow_ahead(self, arena: Arena, now: float) -> None:
        """Plans a segment before it is needed: when less than half of one is free and the budget allows."""
        typical = max(1, self.memory.segment_bytes // arena.slot_bytes)
        if len(arena.pool) * 2 < typical and not self.memory.growing(arena):
            self._plan(arena, now)

    def evict(self, arena: Arena, slots: int) -> list[Entry]:
        """Evicts `slots` pages in the policy's order, if there are so many, and what must go with them.

        Returns what went, also from other arenas; readers keep the slots of theirs.
        """
        gone: list[Entry] = []
        held: list[Entry] = []
        pinned = arena.publication.pinned()
        while slots > 0 and (victim := arena.policy.victim()) is not None:
            unit = victim.together
            if any(entry.bucket in pinned for entry in unit):
                held.append(victim)
                continue
            reclaim.detach_all(unit)
            gone += unit
            slots -= sum(entry.arena is arena for entry in unit)
        for entry in held:
            arena.enqueue(entry)
        reclaim.settle_all(gone)
        return gone

    def shrink(self, arenas: Iterable[Arena]) -> None:
        """Empties segments, the coldest arena's first, until no more than the budget is used."""
        for arena in sorted(arenas, key=_coldness):
            # Looked at first, because to see what may be emptied takes a walk over all entries.
            numbers = reclaim.emptiable(arena) if self.memory.used > self.memory.budget else []
            for number in numbers:
                if self.memory.used <= self.memory.budget:
                    return
                if reclaim.empty(arena, number):
                    self._drop(number)

    def make_entries(self, siblings: list[Arena], count: int) -> bool:
        """Frees places in a tenant's full index: those of pages nobody reads any more, else of the coldest arena's."""
        if sum(sibling.reclaim() for sibling in siblings):
            return True
        return any(self.evict(sibling, count) for sibling in sorted(siblings, key=_coldness))

    def _plan(self, arena: Arena, now: float) -> bool:
        record = self.memory.plan(arena, now)
        if record is not None:
            self.planned.append(record)
        return record is not None

    def _refuse_hopeless(self, arena: Arena, need: int) -> None:
        if need * arena.slot_bytes > self.memory.budget:
            raise self._full(arena, need)

    def _take_over(self, arena: Arena, need: int, others: list[Arena], now: float, own: int) -> bool:
        """Empties segments of other arenas until one of `arena` fits in; none if that could not help.

        `own` slots at most could come from its own pages.
        """
        if self.memory.resting(now):
            return False
        short = need - len(arena.pool) - own
        donors = self._donors(arena, others, desperate=short > 0)
        chosen = [(donor, number) for donor in donors for number in reclaim.emptiable(donor)]
        left = self.memory.budget - self.memory.used
        if left + sum(self.memory.ready[number].nbytes for _, number in chosen) < short * arena.slot_bytes:
            return False
        for donor, number in chosen:
            if not reclaim.empty(donor, number):
                continue
            self._drop(number)
            if self._plan(arena, now):
                return True
        return False

    def _drop(self, number: int) -> None:
        self.dropped.append(self.memory.ready[number])
        self.memory.drop(number)

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

    def index_full(self, arena: Arena, need: int) -> ArenaFull:
        """The refusal when slots are free but the shared index has no place for more entries."""
        error = self._full(arena, need)
        return ArenaFull(
            f"the tenant's index is full: give nexuskvd more --index-entries. {error}", error.numbers
        )

    def _full(self, arena: Arena, need: int) -> ArenaFull:
        slot = arena.slot_bytes
        in_use = len(arena.index) + len(arena.retiring)
        numbers = {
            "needed_bytes": need * slot,
            "free_bytes": len(arena.pool) * slot + max(0, self.memory.budget - self.memory.used),
            "pinned_bytes": min(arena.publication.usage().pinned + arena.pinned, in_use) * slot,
            "writing_bytes": len(arena.writing) * slot,
            "arena_bytes": arena.pool.capacity * slot,
            "budget_bytes": self.memory.budget,
        }
        return ArenaFull(
            f"no room for {need} pages ({numbers['needed_bytes']} bytes): {numbers['free_bytes']} bytes are free, "
            f"{numbers['pinned_bytes']} pinned, {numbers['writing_bytes']} being written, of a budget of "
            f"{self.memory.budget}. Close hits, drop branches, reserve fewer pages at a time, or give nexuskvd more "
            "--memory." + (f" Growth failed: {self.memory.failure}" if self.memory.failure else ""),
            numbers,
        )


def _coldness(arena: Arena) -> int:
    coldest = arena.policy.coldest()
    return 0 if coldest is None else coldest
