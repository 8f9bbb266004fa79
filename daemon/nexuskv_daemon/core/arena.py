"""One arena: all segments and entries of one (descriptor, tenant), and its counters.

Owns the tables that say where each entry stands. Knows nothing of other arenas, sessions, or the memory budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
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
    copied: int = 0


@dataclass(slots=True, eq=False)
class Arena:
    """Entries by state: `writing` and `index` by key, `retiring` without (their keys may be written anew).

    `pinned` counts entries of `index` that at least one hit holds. `chained` arenas are closed under "prefix of".
    `partners` are arenas with pages that go together with some of its own (`ties.py`).
    `held` counts the branches that end at an entry, `partial` has the tokens of pages that are not full, by key;
    `vacated` keys are of pages whose slot passed to a longer page that is being written.
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
    partners: set[Arena] = field(default_factory=set)
    held: dict[Entry, int] = field(default_factory=dict)
    partial: dict[bytes, int] = field(default_factory=dict)
    vacated: set[bytes] = field(default_factory=set)
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

    def knows_none(self, keys: list[bytes]) -> bool:
        """Whether none of `keys` is resident, being written, or about to be."""
        return (
            self.index.keys().isdisjoint(keys)
            and self.writing.keys().isdisjoint(keys)
            and self.vacated.isdisjoint(keys)
        )

    def enqueue(self, entry: Entry) -> None:
        """Tells the policies of an entry that may have become evictable, and what would go with it."""
        absent = [face for face in entry.faces if not face.queued]
        if absent and entry.evictable:
            for face in absent:
                face.arena.policy.add(face)

    def admit(self, entries: list[Entry], owner: int) -> bool:
        """ABSENT -> WRITING, by session `owner`. False when the shared index has no place for them."""
        if not self.publication.reserve(self, entries, owner):
            return False
        writing = self.writing
        for entry in entries:
            writing[entry.key] = entry
            if entry.parent is not None:
                entry.parent.children += 1
        return True

    def publish(self, entries: list[Entry]) -> None:
        """WRITING -> COMMITTED, parents first."""
        writing, index = self.writing, self.index
        for entry in entries:
            key = entry.key
            del writing[key]
            index[key] = entry
            entry.state = COMMITTED
        self.ghosts.forget(entries)
        self.publication.commit(entries)
        for entry in entries:
            # A boundary is queued when the last of its arenas has published. A branch may hold its new tip already.
            if not entry.children and not entry.pins and entry.tie is None:
                self.policy.add(entry)
        self.counters.committed += len(entries)

    def discard(self, entries: list[Entry]) -> None:
        """WRITING -> ABSENT, children first: the slots come back, nobody ever read them."""
        self.publication.abort(entries)
        for entry in entries:
            del self.writing[entry.key]
            entry.tie = None
            self._unlink(entry)
            self._free(entry)

    def detach(self, entry: Entry) -> None:
        """COMMITTED -> RETIRING, as far as other entries are concerned; `settle` ends it. Its children went before."""
        assert not entry.children
        del self.index[entry.key]
        entry.state = RETIRING
        entry.tie = None
        self._unlink(entry)
        self.ghosts.remember(entry)
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

    def pin(self, entries: Collection[Entry], tick: int) -> None:
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
            if entry.pins:
                continue
            if entry.state is RETIRING:
                self.reclaim((entry,))
                continue
            self.pinned -= 1
            if entry.tie is not None:
                self.enqueue(entry)
            elif not entry.children and not entry.queued:  # most often it has children
                self.policy.add(entry)

    def lacking(self, entry: Entry) -> int:
        """Tokens that a page lacks to be full."""
        if not self.partial:
            return 0
        page_tokens = self.descriptor.page_tokens
        return page_tokens - self.partial.get(entry.key, page_tokens)

    def hold(self, entry: Entry) -> None:
        """One more branch ends at `entry`: neither it nor what it hangs from goes, whoever asks for that."""
        branches = self.held.get(entry, 0)
        self.held[entry] = branches + 1
        if not branches:
            self.pin([entry], entry.tick)

    def let_go(self, entry: Entry) -> None:
        """One branch less ends at `entry`."""
        self.held[entry] -= 1
        if not self.held[entry]:
            del self.held[entry]
            self.unpin([entry])

    def regrow(self, old: Entry, fresh: Entry, owner: int) -> bool:
        """The slot of a partly filled page passes to a longer one that begins alike, to be written by `owner`.

        The page must be held once and be nobody's parent. False, and nothing changed, when somebody reads it.
        """
        self.publication.retire([old])
        if not self.publication.free([old]):
            self.publication.revive([old])
            return False
        if not self.admit([fresh], owner):
            self._republish(old)
            return False
        del self.index[old.key], self.held[old]
        self.vacated.add(old.key)
        self.pinned -= 1
        old.pins = 0
        old.state = ABSENT
        self._unlink(old)
        return True

    def shrink_back(self, fresh: Entry, old: Entry) -> None:
        """What `regrow` did is undone: `old` is resident again, in its slot, and held by nobody."""
        self.publication.abort([fresh])
        del self.writing[fresh.key]
        fresh.state = ABSENT
        old.parent, fresh.parent = fresh.parent, None  # one child of its parent goes, another comes
        self.vacated.remove(old.key)
        self._republish(old)
        self.index[old.key] = old
        old.state = COMMITTED

    def _republish(self, entry: Entry) -> None:
        room = self.publication.reserve(self, [entry], 0)
        assert room, "the place that an entry left is not there for it"
        self.publication.commit([entry])

    def forget_partial(self, key: bytes) -> None:
        """Forgets how many tokens a page has, unless it is there."""
        if key in self.partial and not (key in self.index or key in self.writing or key in self.vacated):
            del self.partial[key]

    def _unlink(self, entry: Entry) -> None:
        parent = entry.parent
        if parent is not None:
            entry.parent = None
            parent.children -= 1
            self.enqueue(parent)

    def _free(self, entry: Entry) -> None:
        entry.state = ABSENT
        self.pool.give((entry.handle,))
        if self.partial:
            self.forget_partial(entry.key)


def by_arena(entries: Iterable[Entry]) -> dict[Arena, list[Entry]]:
    """Entries of several arenas, arena by arena in their order."""
    parts: dict[Arena, list[Entry]] = defaultdict(list)
    for entry in entries:
        parts[entry.arena].append(entry)
    return parts
