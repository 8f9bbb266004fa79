"""One arena: all segments and entries of one (descriptor, tenant), and its counters.

Owns the tables that say where each entry stands. Knows nothing of other arenas, sessions, or the memory budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nexuskv.contract import AllPages, Descriptor, slot_bytes
from nexuskv_daemon.core.entries import ABSENT, COMMITTED, RETIRING, Entry
from nexuskv_daemon.core.eviction import EvictionPolicy
from nexuskv_daemon.core.ghosts import Ghosts
from nexuskv_daemon.core.slots import SlotPool


@dataclass(slots=True)
class Counters:
    """What happened since the daemon's start, in pages."""

    hits: int = 0
    misses: int = 0
    committed: int = 0
    aborted: int = 0
    evicted: int = 0


@dataclass(slots=True, eq=False)
class Arena:
    """Entries by state: `writing` and `index` by key, `retiring` without (their keys may be written anew).

    `pinned` counts entries of `index` that at least one hit holds. `chained` arenas are closed under "prefix of".
    """

    number: int
    tenant: str
    descriptor: Descriptor
    policy: EvictionPolicy
    index: dict[bytes, Entry] = field(default_factory=dict)
    writing: dict[bytes, Entry] = field(default_factory=dict)
    retiring: set[Entry] = field(default_factory=set)
    pool: SlotPool = field(default_factory=SlotPool)
    ghosts: Ghosts = field(default_factory=Ghosts)
    counters: Counters = field(default_factory=Counters)
    pinned: int = 0
    page_bytes: int = field(init=False)
    slot_bytes: int = field(init=False)
    chained: bool = field(init=False)

    def __post_init__(self) -> None:
        self.page_bytes = self.descriptor.page_bytes
        self.slot_bytes = slot_bytes(self.page_bytes)
        self.chained = isinstance(self.descriptor.reuse, AllPages)

    @property
    def evictable_at_most(self) -> int:
        """Slots that eviction could free: exact but for unpinned ancestors of pinned pages."""
        return len(self.index) - self.pinned

    def enqueue(self, entry: Entry) -> None:
        """Tells the policy of an entry that may have become evictable."""
        if entry.evictable and not entry.queued:
            self.policy.add(entry)

    def publish(self, entry: Entry) -> None:
        """WRITING -> COMMITTED."""
        del self.writing[entry.key]
        self.index[entry.key] = entry
        entry.state = COMMITTED
        self.ghosts.forget(entry.key)
        self.enqueue(entry)

    def discard(self, entry: Entry) -> None:
        """WRITING -> ABSENT: the slot comes back, nobody ever read it."""
        del self.writing[entry.key]
        self._unlink(entry)
        self._free(entry)

    def retire(self, entry: Entry) -> None:
        """COMMITTED -> ABSENT, or RETIRING while a hit holds it. Its children went before it."""
        assert not entry.children
        del self.index[entry.key]
        self._unlink(entry)
        self.ghosts.remember(entry)
        self.counters.evicted += 1
        if not entry.pins:
            self._free(entry)
            return
        entry.state = RETIRING
        self.pinned -= 1
        self.retiring.add(entry)

    def pin(self, entries: list[Entry], tick: int) -> None:
        """One more hit holds each of `entries`, which are used now."""
        fresh = 0
        for entry in entries:
            if not entry.pins:
                fresh += 1
            entry.pins += 1
            entry.tick = tick
        self.pinned += fresh

    def unpin(self, entries: Iterable[Entry]) -> None:
        """A hit on each of `entries` ended."""
        for entry in entries:
            entry.pins -= 1
            if not entry.pins:
                self._unpinned(entry)

    def _unpinned(self, entry: Entry) -> None:
        if entry.state is RETIRING:
            self.retiring.remove(entry)
            self._free(entry)
            return
        self.pinned -= 1
        if not entry.children and not entry.queued:
            self.policy.add(entry)

    def _unlink(self, entry: Entry) -> None:
        parent = entry.parent
        if parent is not None:
            entry.parent = None
            parent.children -= 1
            self.enqueue(parent)

    def _free(self, entry: Entry) -> None:
        entry.state = ABSENT
        self.pool.give((entry.handle,))
