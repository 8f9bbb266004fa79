"""Which page goes first when room is needed.

Owns the order of victims, not their removal. The interface is two calls, so that a better policy can take the place of
this one: the store tells it of every entry that becomes evictable, and asks for the next victim.
"""

import heapq
from typing import Protocol

from nexuskv_daemon.core.entries import Entry


class EvictionPolicy(Protocol):
    """Orders the evictable entries of one arena."""

    def add(self, entry: Entry) -> None:
        """`entry` is evictable now and `queued` is false; sets it."""

    def victim(self) -> Entry | None:
        """The entry to evict next, taken off the queue; None when nothing is evictable."""

    def coldest(self) -> int | None:
        """The tick of the next victim, without taking it; None when nothing is evictable."""


class LeafLru:
    """Least recently used leaf first.

    Leaves before parents keeps what is resident closed under "prefix of": a head of a chain without its tail is
    still of use, a tail without its head is not. A hit only writes a new tick into the entries it touches; the heap
    is put right when a victim is asked for, so touching costs nothing here, and a busy leaf is moved once an
    eviction, not once a hit.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, Entry]] = []

    def add(self, entry: Entry) -> None:
        entry.queued = True
        heapq.heappush(self._heap, (entry.used, entry))

    def victim(self) -> Entry | None:
        if self.coldest() is None:
            return None
        _, entry = heapq.heappop(self._heap)
        entry.queued = False
        return entry

    def coldest(self) -> int | None:
        heap = self._heap
        while heap:
            tick, entry = heap[0]
            if not entry.evictable:
                # It grew a child, got pinned or went; whoever makes it evictable again adds it again.
                heapq.heappop(heap)
                entry.queued = False
            elif entry.used != tick:
                heapq.heapreplace(heap, (entry.used, entry))
            else:
                return tick
        return None
