"""Readers of one tenant in memory: what the shared index is to the store, without the sharing."""

from collections import Counter

from nexuskv.contract import Descriptor
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.publication import Usage
from nexuskv_daemon.core.ties import TIED


class Readers:
    """`pins` counts readers of a handle; `found` holds what a reader would find now, by arena number and key."""

    def __init__(self, capacity: int = 1 << 30) -> None:
        self.capacity = capacity
        self.pins: Counter[int] = Counter()
        self.found: dict[tuple[int, bytes], int] = {}
        self.touched: list[tuple[int, bytes]] = []
        self.segments: set[int] = set()
        self.arenas: list[int] = []
        self._occupied: dict[int, tuple[int, bytes]] = {}

    def reserve(self, arena: Arena, entries: list[Entry], owner: int) -> bool:
        assert owner >= 0
        if len(self._occupied) + len(entries) > self.capacity:
            return False
        assert all(entry.handle >> 32 in self.segments for entry in entries)
        self._occupied.update((entry.handle, (arena.number, entry.key)) for entry in entries)
        for entry in entries:
            entry.bucket = entry.handle
        return True

    def commit(self, entries: list[Entry]) -> None:
        self.found.update((self._occupied[entry.handle], entry.handle) for entry in entries)

    def abort(self, entries: list[Entry]) -> None:
        for entry in entries:
            del self._occupied[entry.handle]

    def tie(self, entries: list[Entry], word: int) -> None:
        assert word >= TIED
        assert all(self._occupied[entry.handle] == (entry.arena.number, entry.key) for entry in entries)

    def retire(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert self.found.pop(self._occupied[entry.handle]) == entry.handle

    def revive(self, entries: list[Entry]) -> None:
        self.commit(entries)

    def pinned(self) -> set[int]:
        return {handle for handle, count in self.pins.items() if count}

    def free(self, entries: list[Entry]) -> list[Entry]:
        unpinned = [entry for entry in entries if not self.pins[entry.handle]]
        self.abort(unpinned)
        return unpinned

    def announce(self, arena: Arena, descriptor: Descriptor) -> None:
        assert arena.descriptor.digest == descriptor.digest
        self.arenas.append(arena.number)

    def admits(self, segment: int) -> bool:
        return segment > 0

    def add_segment(self, arena: Arena, segment: int, slots: int, nbytes: int) -> None:
        assert arena.number in self.arenas
        assert slots * arena.slot_bytes <= nbytes
        self.segments.add(segment)

    def remove_segment(self, segment: int) -> None:
        assert not any(handle >> 32 == segment for handle in self._occupied)
        self.segments.remove(segment)

    def attach(self, session: int) -> None:
        assert session > 0

    def detach(self, session: int) -> None:
        assert session > 0

    def usage(self) -> Usage:
        return Usage(0, 0, 0, sum(self.pins.values()), len(self._occupied), self.capacity)

    def used(self) -> list[tuple[int, bytes]]:
        touched, self.touched = self.touched, []
        return touched
