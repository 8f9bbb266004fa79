"""Readers of one tenant in memory: what the shared index is to the store, without the sharing."""

from collections import Counter

from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry


class Readers:
    """`pins` counts readers of each (arena, handle); `found` holds what a reader would find now."""

    def __init__(self, capacity: int = 1 << 30) -> None:
        self.capacity = capacity
        self.pins: Counter[tuple[int, int]] = Counter()
        self.found: dict[tuple[int, bytes], int] = {}
        self.touched: list[tuple[int, bytes]] = []
        self._occupied: set[tuple[int, int]] = set()

    def reserve(self, arena: Arena, entries: list[Entry], owner: int) -> bool:
        assert owner >= 0
        if len(self._occupied) + len(entries) > self.capacity:
            return False
        self._occupied |= {(arena.number, entry.handle) for entry in entries}
        return True

    def commit(self, arena: Arena, entries: list[Entry]) -> None:
        self.found.update(((arena.number, entry.key), entry.handle) for entry in entries)

    def abort(self, arena: Arena, entries: list[Entry]) -> None:
        self._occupied -= {(arena.number, entry.handle) for entry in entries}

    def retire(self, arena: Arena, entries: list[Entry]) -> None:
        for entry in entries:
            assert self.found.pop((arena.number, entry.key)) == entry.handle

    def free(self, arena: Arena, entries: list[Entry]) -> list[Entry]:
        unpinned = [entry for entry in entries if not self.pins[arena.number, entry.handle]]
        self._occupied -= {(arena.number, entry.handle) for entry in unpinned}
        return unpinned

    def used(self) -> list[tuple[int, bytes]]:
        touched, self.touched = self.touched, []
        return touched
