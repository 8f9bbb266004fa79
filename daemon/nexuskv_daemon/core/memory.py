"""The daemon's memory budget, in whole segments.

Owns how many bytes each segment takes and how large the next one may be. Creating and removing the objects is the
shell's work; which entries must go is the store's.
"""

from dataclasses import dataclass

from nexuskv_daemon.core.arena import Arena

PAGE = 4096
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One segment: `nbytes` is the size of its object, a multiple of the machine's page."""

    number: int
    arena: Arena
    slots: int
    nbytes: int


class Memory:
    """Every segment there is or is being made, and the bytes left."""

    def __init__(self, budget: int, segment_bytes: int) -> None:
        self.budget = budget
        self.segment_bytes = segment_bytes
        self.used = 0
        self.failure = ""
        self._retry_at = 0.0
        self.ready: dict[int, SegmentRecord] = {}
        self.pending: dict[int, SegmentRecord] = {}
        self._last = 0

    def plan(self, arena: Arena, now: float) -> SegmentRecord | None:
        """Sets memory aside for one more segment; None without room for a slot, or when growth failed lately."""
        if self.resting(now):
            return None
        slot = arena.slot_bytes
        slots = min(max(1, self.segment_bytes // slot), (self.budget - self.used) // PAGE * PAGE // slot)
        if slots <= 0:
            return None
        number = self._next(arena)
        if not number:
            return None
        self._last = number
        record = SegmentRecord(number, arena, slots, -(-slots * slot // PAGE) * PAGE)
        self.used += record.nbytes
        self.pending[record.number] = record
        return record

    def _next(self, arena: Arena) -> int:
        """A number that no segment ever had and that the tenant's directory has a row for; 0 when it is full."""
        candidates = range(self._last + 1, self._last + len(self.ready) + 2)
        return next((number for number in candidates if arena.publication.admits(number)), 0)

    def resting(self, now: float) -> bool:
        """Whether growth failed a short while ago."""
        return now < self._retry_at

    def made(self, number: int) -> SegmentRecord:
        """The shell made a planned segment. Raises ArenaFull when the directory has no row for it."""
        record = self.pending[number]
        record.arena.publication.add_segment(record.arena, number, record.slots, record.nbytes)
        self.ready[number] = self.pending.pop(number)
        record.arena.pool.add_segment(number, record.slots)
        self.failure = ""
        return record

    def failed(self, number: int, reason: str, now: float) -> SegmentRecord:
        """The shell could not make a planned segment. Growth rests a while, not to ask a full machine at every turn."""
        record = self.pending.pop(number)
        self.used -= record.nbytes
        self.failure = reason
        self._retry_at = now + RETRY_SECONDS
        return record

    def drop(self, number: int) -> None:
        """Forgets an empty segment."""
        record = self.ready.pop(number)
        record.arena.publication.remove_segment(number)
        record.arena.pool.drop_segment(number)
        self.used -= record.nbytes

    def resume(self, last: int) -> None:
        """Segments up to number `last` may have been there: clients keep mappings by number, so none comes again."""
        self._last = max(self._last, last)

    def restore(self, record: SegmentRecord) -> None:
        """A segment that an earlier daemon made; its slots are the arena's affair."""
        self.ready[record.number] = record
        self.used += record.nbytes
        self.resume(record.number)

    def bytes_of(self, arena: Arena) -> int:
        """Bytes of all segments of `arena`, those being made included."""
        records = [*self.ready.values(), *self.pending.values()]
        return sum(record.nbytes for record in records if record.arena is arena)

    def growing(self, arena: Arena) -> bool:
        """Whether a segment of `arena` is being made."""
        return any(record.arena is arena for record in self.pending.values())
