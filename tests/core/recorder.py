"""Readers that keep what a shared index would hold, for a store to be rebuilt from."""

from nexuskv.native import LIVE, RETIRING, WRITING
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.restore import Record
from tests.core.readers import Readers


class Recorder(Readers):
    """`records` by handle, as the index's walk gives them."""

    def __init__(self, capacity: int = 1 << 30) -> None:
        super().__init__(capacity)
        self.records: dict[int, Record] = {}
        self.sizes: dict[int, tuple[int, int, int]] = {}
        """Arena, slots and bytes of each segment."""
        self._ticks = 0

    def reserve(self, arena: Arena, entries: list[Entry], owner: int) -> bool:
        if not super().reserve(arena, entries, owner):
            return False
        for entry in entries:
            self._ticks += 1
            parent = entry.parent.key if entry.parent is not None else b""
            offset = (entry.handle & 0xFFFFFFFF) * arena.slot_bytes
            place = (
                entry.handle >> 32,
                offset,
                arena.page_bytes,
                arena.partial.get(entry.key, arena.descriptor.page_tokens),
            )
            self.records[entry.handle] = (
                entry.key, parent, *place, owner, 0, self._ticks, entry.bucket, WRITING
            )  # fmt: skip
        return True

    def commit(self, entries: list[Entry]) -> None:
        super().commit(entries)
        self._step(entries, LIVE)

    def tie(self, entries: list[Entry], word: int) -> None:
        super().tie(entries, word)
        for entry in entries:
            record = self.records[entry.handle]
            self.records[entry.handle] = (*record[:6], word, *record[7:])

    def retire(self, entries: list[Entry]) -> None:
        super().retire(entries)
        self._step(entries, RETIRING)

    def abort(self, entries: list[Entry]) -> None:
        super().abort(entries)
        for entry in entries:
            del self.records[entry.handle]

    def add_segment(self, arena: Arena, segment: int, slots: int, nbytes: int) -> None:
        super().add_segment(arena, segment, slots, nbytes)
        self.sizes[segment] = arena.number, slots, nbytes

    def remove_segment(self, segment: int) -> None:
        super().remove_segment(segment)
        del self.sizes[segment]

    def lose(self, handle: int) -> None:
        """The record was torn."""
        *_, state = self.records.pop(handle)
        key = self._occupied.pop(handle)
        if state == LIVE:
            del self.found[key]

    def _step(self, entries: list[Entry], state: int) -> None:
        for entry in entries:
            self.records[entry.handle] = (*self.records[entry.handle][:-1], state)
