"""One arena: all segments and entries of one (descriptor, tenant), and its counters.

Owns the tables that say where each entry stands. Knows nothing of other arenas, sessions, or the memory budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nexuskv.contract import Descriptor, slot_bytes
from nexuskv_daemon.core.entries import ABSENT, COMMITTED, RETIRING, Entry
from nexuskv_daemon.core.eviction import EvictionPolicy
from nexuskv_daemon.core.ghosts import Ghosts
from nexuskv_daemon.core.publication import Publication
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
    publication: Publication
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
        self.chained = self.descriptor.chained

    @property
    def evictable_at_most(self) -> int:
        """Slots that eviction could free: exact but for unpinned ancestors of pinned pages."""
        return len(self.index) - self.pinned

    def enqueue(self, entry: Entry) -> None:
        """Tells the policy of an entry that may have become evictable."""
        if entry.evictable and not entry.queued:
            self.policy.add(entry)

    def admit(self, entries: list[Entry], owner: int) -> bool:
        """ABSENT -> WRITING, by session `owner`. False when the shared index has no place for them."""
        if not self.publication.reserve(self, entries, owner):
            return False
        for entry in entries:
            self.writing[entry.key] = entry
            if entry.parent is not None:
                entry.parent.children += 1
        return True

    def publish(self, entries: list[Entry]) -> None:
        """WRITING -> COMMITTED, parents first."""
        for entry in entries:
            del self.writing[entry.key]
            self.index[entry.key] = entry
            entry.state = COMMITTED
            self.ghosts.forget(entry.key)
        self.publication.commit(entries)
        for entry in entries:
            self.enqueue(entry)
        self.counters.committed += len(entries)

    def discard(self, entries: list[Entry]) -> None:
        """WRITING -> ABSENT, children first: the slots come back, nobody ever read them."""
        self.publication.abort(entries)
        for entry in entries:
            del self.writing[entry.key]
            self._unlink(entry)
            self._free(entry)
        self.counters.aborted += len(entries)

    def detach(self, entry: Entry) -> None:
        """COMMITTED -> RETIRING, as far as other entries are concerned; `settle` ends it. Its children went before."""
        assert not entry.children
        del self.index[entry.key]
        self._unlink(entry)
        self.ghosts.remember(entry)
        entry.state = RETIRING
        if entry.pins:
            self.pinned -= 1

    def settle(self, entries: list[Entry]) -> int:
        """Detached entries: their slots come back unless somebody reads them. Returns how many did."""
        self.publication.retire(entries)
        self.counters.evicted += len(entries)
        self.retiring.update(entries)
        return self.reclaim(entries)

    def reclaim(self, entries: Iterable[Entry] | None = None) -> int:
        """RETIRING -> ABSENT where nobody reads any more, of `entries` or of all. Returns how many."""
        unheld = [entry for entry in (self.retiring if entries is None else entries) if not entry.pins]
        free = self.publication.free(unheld) if unheld else []
        for entry in free:
            self.retiring.remove(entry)
            self._free(entry)
        return len(free)

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
            self.reclaim((entry,))
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
