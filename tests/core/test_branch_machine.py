"""Branches against a plain dict model, step by step, with all invariants and all tokens in memory checked."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nexuskv.errors import ArenaFull, Busy
from nexuskv_daemon.core.branch import Branch, End
from nexuskv_daemon.core.check import check
from nexuskv_daemon.core.lineage import Lineage, ancestry
from nexuskv_daemon.core.store import Store
from tests.core.readers import Readers
from tests.core.trees import (
    ROOT,
    SEGMENT,
    Known,
    Memory,
    Open,
    S,
    Tokens,
    append,
    descriptor,
    keys,
    make_segments,
    pages,
    path,
)

FEW_TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
"""Of two kinds, so that branches often append the same."""
PICKS = st.integers(0, 1 << 16)


def chosen(numbers: list[int], pick: int) -> int:
    """One of `numbers`; the newest for pick 0."""
    return numbers[-1 - pick % len(numbers)]


class BranchMachine(RuleBasedStateMachine):
    """The model knows every branch's tokens, parent and references; and what each slot of memory holds."""

    @initialize()
    def start(self) -> None:
        self.readers = Readers()
        self.store = Store(SEGMENT * 4, SEGMENT, lambda _: self.readers, branches=Lineage(1000))
        self.arena = self.store.register("t", descriptor())
        self.memory = Memory()
        self.known: dict[int, Known] = {}
        self.open: dict[int, Open] = {}
        self.contexts: dict[bytes, Tokens] = {}
        self.copies = 0
        self.reads: list[list[tuple[int, Tokens]]] = []
        self.open_branch([0] * S)
        self.append_and_commit(0, [1])

    def _note(self, tokens: Tokens) -> None:
        self.contexts.update(zip(keys(tokens), pages(tokens), strict=True))

    @rule(tokens=st.lists(st.integers(0, 1), max_size=8))
    def open_branch(self, tokens: Tokens) -> None:
        tokens = tokens[: len(tokens) // S * S]
        wanted = keys(tokens)
        self._note(tokens)
        try:
            while (granted := self.store.reserve(self.arena, wanted, b"", None, 0.0)) is None:
                make_segments(self.store)
        except ArenaFull:
            return
        reservation, plan = granted
        make_segments(self.store)
        self.memory.slots.update((entry.handle, self.contexts[entry.key]) for entry in reservation.entries)
        reservation.commit([], rest=True)
        if plan.busy:
            return
        tip = self.arena.index[wanted[-1]] if wanted else None
        number = self.store.branches.open(self.arena, ROOT, End(tip, len(tokens), b"")).number
        self.known[number] = Known(tokens)

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS, count=st.integers(1, 3))
    def fork(self, pick: int, count: int) -> None:
        number = chosen(self.settled(), pick)
        first = self.store.branches.fork(self._branch(number), count)
        parent = self.known[number]
        for child in range(first, first + count):
            self.known[child] = Known(parent.tokens, number, parent.depth + 1)

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS, added=FEW_TOKENS)
    def begin_append(self, pick: int, added: Tokens) -> None:
        self._begin(chosen(self.settled(), pick), added)

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS, added=FEW_TOKENS)
    def append_and_commit(self, pick: int, added: Tokens) -> None:
        number = chosen(self.settled(), pick)
        self._begin(number, added)
        if number in self.open:
            self._commit(number)

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS, count=st.integers(1, 3), added=FEW_TOKENS)
    def fork_and_append(self, pick: int, count: int, added: Tokens) -> None:
        self.fork(pick, count)
        self.append_and_commit(0, added)

    def _begin(self, number: int, added: Tokens) -> None:
        branch, before = self._branch(number), self.known[number].tokens
        self._note(before + added)
        shared = branch.published or branch.holders > 1
        if branch.end.tip is not None:
            shared |= self.arena.held[branch.end.tip] > 1 or bool(self.readers.pins[branch.end.tip.handle])
        resident = keys(before + added)[len(before) // S] in self.arena.index
        try:
            growth = append(self.store, branch, before, added)
        except (Busy, ArenaFull):
            make_segments(self.store)
            return
        copied = bool(shared and not resident and len(before) % S)
        assert (growth.source is not None) == copied, "a shared tail, and nothing else, is copied"
        self.copies += copied
        self.memory.write(growth, before, added)
        self.open[number] = Open(growth, added)

    @precondition(lambda self: self.open)
    @rule(pick=PICKS, added=FEW_TOKENS)
    def append_twice(self, pick: int, added: Tokens) -> None:
        number = chosen(list(self.open), pick)
        with pytest.raises(Busy):
            append(self.store, self._branch(number), self.known[number].tokens, added)

    @precondition(lambda self: self.open)
    @rule(pick=PICKS)
    def commit(self, pick: int) -> None:
        self._commit(chosen(list(self.open), pick))

    def _commit(self, number: int) -> None:
        open_ = self.open.pop(number)
        open_.growth.commit([], rest=True)
        self.known[number].tokens = self.known[number].tokens + open_.added

    @precondition(lambda self: self.open)
    @rule(pick=PICKS, scribble=st.booleans())
    def abort(self, pick: int, scribble: bool) -> None:
        """The appender may have written other tokens than its own after the tail."""
        number = chosen(list(self.open), pick)
        open_ = self.open.pop(number)
        if scribble:
            tail = len(self.known[number].tokens) % S
            for place, entry in enumerate(open_.growth.entries):
                kept = self.memory.slots[entry.handle][: tail if not place else 0]
                self.memory.slots[entry.handle] = kept + [7] * (S - len(kept))
        open_.growth.abort()

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS)
    def drop(self, pick: int) -> None:
        number = chosen(self.settled(), pick)
        if self.known[number].holders:
            self.known[number].holders -= 1
            self.store.branches.release(self._branch(number))
            self._leave(number)

    @precondition(lambda self: self.open)
    @rule(pick=PICKS)
    def die_while_appending(self, pick: int) -> None:
        """The session of a branch ends before its append does."""
        number = chosen(list(self.open), pick)
        known = self.known[number]
        branch, known.holders = self._branch(number), 0
        self.store.branches.release(branch, branch.holders)
        self._leave(number)
        check(self.store)
        self.open.pop(number).growth.abort()

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS)
    def hold(self, pick: int) -> None:
        number = chosen(self.settled(), pick)
        self.store.branches.hold(self._branch(number))
        self.known[number].holders += 1

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS, published=st.booleans())
    def publish(self, pick: int, published: bool) -> None:
        number = chosen(self.settled(), pick)
        self.known[number].published = published
        if published:
            self.store.branches.publish(self._branch(number))
        else:
            self.store.branches.withdraw(self._branch(number))
        self._leave(number)

    @precondition(lambda self: self.settled())
    @rule(pick=PICKS)
    def read(self, pick: int) -> None:
        """A reader pins what it finds of a branch in the shared index, which is all of it."""
        tokens = self.known[chosen(self.settled(), pick)].tokens
        pinned = [(self.readers.found[self.arena.number, key], self.contexts[key]) for key in keys(tokens)]
        self.readers.pins.update(handle for handle, _ in pinned)
        self.reads.append(pinned)

    @precondition(lambda self: self.reads)
    @rule(pick=PICKS)
    def stop_reading(self, pick: int) -> None:
        pinned = self.reads.pop(pick % len(self.reads))
        self.readers.pins.subtract(handle for handle, _ in pinned)

    @rule(count=st.integers(1, 10))
    def evict(self, count: int) -> None:
        self.store.evict(self.arena, count * self.arena.slot_bytes)

    @rule()
    def evict_everything(self) -> None:
        self.store.evict_everything(self.arena)

    def settled(self) -> list[int]:
        """Branches that are held, and have no append open."""
        return [number for number in self.known if self._is_held(number) and number not in self.open]

    def _branch(self, number: int) -> Branch:
        return self.store.branches.find(number, "t")

    def _is_held(self, number: int) -> bool:
        known = self.known[number]
        return known.published or known.holders > 0

    def _lineage(self, number: int) -> list[int]:
        parent = self.known[number].parent
        return [number] if parent is None else [number, *self._lineage(parent)]

    def _references(self, number: int) -> int:
        known = self.known[number]
        children = sum(1 for each in self.known.values() if each.parent == number)
        return children + known.holders + known.published

    def _leave(self, number: int) -> None:
        """The model's own idea of who leaves."""
        above: int | None = number
        while above is not None and not self._references(above):
            above = self.known.pop(above).parent

    @invariant()
    def same_tree_and_same_tokens(self) -> None:
        if not hasattr(self, "store"):
            return
        check(self.store)
        branches = self.store.branches.branches
        assert branches.keys() == self.known.keys()
        for number, known in self.known.items():
            branch = branches[number]
            assert [each.number for each in ancestry(branch)] == self._lineage(number)
            assert (branch.depth, branch.references) == (known.depth, self._references(number))
            if self._is_held(number):
                assert branch.end.tokens == len(known.tokens)
                in_place = number in self.open and branch.end.tip is None
                assert in_place or path(branch) == keys(known.tokens)
        self.memory.holds(self.arena, self.contexts)
        for pinned in self.reads:
            assert all(self.memory.slots[handle][: len(tokens)] == tokens for handle, tokens in pinned)
        assert self.arena.counters.copied == self.copies

    def teardown(self) -> None:
        """Everybody goes: every page can be evicted, and no slot is lost."""
        if not hasattr(self, "store"):
            return
        for open_ in self.open.values():
            open_.growth.abort()
        for number, known in self.known.items():
            if self._is_held(number):
                self.store.branches.hold(self._branch(number))
                self.store.branches.withdraw(self._branch(number))
                self.store.branches.release(self._branch(number), known.holders + 1)
        self.readers.pins.clear()
        self.arena.reclaim()
        self.store.evict_everything(self.arena)
        assert (self.store.branches.branches, self.arena.held, self.arena.partial) == ({}, {}, {})
        assert len(self.arena.pool) == self.arena.pool.capacity
        check(self.store)


TestBranches = BranchMachine.TestCase
TestBranches.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
