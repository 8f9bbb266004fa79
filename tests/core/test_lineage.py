"""Who stays and who leaves in a tree of branches, and what of it the next daemon finds."""

from __future__ import annotations

import contextlib
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nexuskv.errors import ArenaFull, BadRequest, UnknownBranch
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.branch import Branch, BranchLine, End
from nexuskv_daemon.core.check import check
from nexuskv_daemon.core.lineage import Lineage, ancestry
from nexuskv_daemon.core.memory import SegmentRecord
from nexuskv_daemon.core.restore import restore
from nexuskv_daemon.core.store import Store
from tests.core.recorder import Recorder
from tests.core.trees import ROOT, SEGMENT, Tokens, append, descriptor, keys, path

EMPTY = End(None, 0, b"")


class Notes:
    """A log in memory; `full` when nothing more can be written."""

    def __init__(self) -> None:
        self.lines: dict[int, BranchLine] = {}
        self.full = False
        self.writes = 0

    def note(self, lines: list[BranchLine]) -> None:
        if self.full:
            raise ArenaFull("the log is full")
        self.amend(lines, [])

    def amend(self, lines: list[BranchLine], gone: list[int]) -> None:
        self.writes += len(lines) + len(gone)
        self.lines.update((line.number, line) for line in lines)
        for number in gone:
            del self.lines[number]


class World:
    """A store whose readers and log keep what the next daemon reads."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.readers = Recorder()
        lineage = Lineage(1, self.notes)
        self.store = Store(SEGMENT * 8, SEGMENT, lambda _: self.readers, branches=lineage)
        self.arena: Arena = self.store.register("t", descriptor())
        self.tokens: dict[int, Tokens] = {}

    @property
    def lineage(self) -> Lineage:
        return self.store.branches

    def root(self) -> Branch:
        branch = self.lineage.open(self.arena, ROOT, EMPTY)
        self.tokens[branch.number] = []
        return branch

    def fork(self, parent: Branch) -> Branch:
        child = self.lineage.branches[self.lineage.fork(parent, 1)]
        self.tokens[child.number] = self.tokens[parent.number]
        return child

    def grow(self, branch: Branch, added: Tokens) -> None:
        append(self.store, branch, self.tokens[branch.number], added).commit([], rest=True)
        self.tokens[branch.number] = self.tokens[branch.number] + added

    def next(self, lost: frozenset[bytes] = frozenset()) -> World:
        """What a daemon finds that is started after this one was killed; all connections are gone."""
        after = World()
        after.notes, after.readers = self.notes, self.readers
        after.store = Store(SEGMENT * 8, SEGMENT, lambda _: self.readers, branches=Lineage(10**6, self.notes))
        after.arena = after.store.restore_arena(1, "t", descriptor())
        for segment, (_, slots, nbytes) in self.readers.sizes.items():
            after.store.memory.restore(SegmentRecord(segment, after.arena, slots, nbytes))
        for handle in [at for at, record in self.readers.records.items() if record[0] in lost]:
            self.readers.lose(handle)
        restored = restore(after.store.arenas, after.store.memory, self.readers.records.values())
        for reservations in restored.writing.values():
            for reservation in reservations:
                reservation.abort()
        after.store.branches.restore(list(self.notes.lines.values()), after.store.arenas)
        after.tokens = self.tokens
        return after


@pytest.fixture
def world() -> World:
    return World()


def test_what_children_need_stays_when_their_parent_is_dropped(world: World) -> None:
    parent = world.root()
    world.grow(parent, [1] * 6)
    child = world.fork(parent)
    world.grow(parent, [2] * 6)
    world.lineage.release(parent)

    world.store.evict_everything(world.arena)
    assert path(child) == keys([1] * 6)
    assert set(world.arena.index) == set(keys([1] * 6))
    assert [each.number for each in ancestry(child)] == [child.number, parent.number]
    world.lineage.release(child)
    assert world.lineage.branches == {}
    check(world.store)


def test_a_long_line_of_dropped_parents_leaves_with_its_last_child(world: World) -> None:
    branch = world.root()
    for _ in range(20_000):
        child = world.fork(branch)
        world.lineage.release(branch)
        branch = child
    assert len(world.lineage.branches) == 20_001
    assert branch.depth == 20_000

    world.lineage.release(branch)
    assert world.lineage.branches == {}


def test_a_tenant_has_so_many_branches_and_no_more(world: World) -> None:
    lineage = Lineage(limit=5)
    root = lineage.open(world.arena, ROOT, EMPTY)
    lineage.fork(root, 4)
    with pytest.raises(BadRequest, match="this tenant has 5 of at most 5"):
        lineage.fork(root, 1)
    lineage.release(lineage.branches[2])
    lineage.fork(root, 1)


def test_a_branch_of_another_tenant_is_unknown_like_one_that_never_was(world: World) -> None:
    number = world.root().number
    with pytest.raises(UnknownBranch) as theirs:
        world.lineage.find(number, "another")
    with pytest.raises(UnknownBranch) as nobodys:
        world.lineage.find(999, "another")
    assert str(theirs.value).replace(str(number), "999") == str(nobodys.value)


def test_numbers_that_are_taken_are_passed_over(world: World) -> None:
    lineage = Lineage(first=7)
    line = world.root().line()
    lines = [BranchLine(9, *_rest(line, published=True)), BranchLine(12, *_rest(line, published=True))]
    assert lineage.restore(lines, {1: world.arena}) == []
    root = lineage.open(world.arena, ROOT, EMPTY)
    assert root.number == 7
    first = lineage.fork(root, 3)
    assert not {9, 12} & set(range(first, first + 3))


def _rest(line: BranchLine, *, published: bool) -> tuple[int, int, int, bytes, bytes, int, bytes, int, bool]:
    return 0, line.depth, 1, line.root, line.tip, line.tokens, line.tail, line.copies, published


def test_what_cannot_be_written_down_is_not_published(world: World) -> None:
    branch = world.fork(world.root())
    world.notes.full = True
    with pytest.raises(ArenaFull):
        world.lineage.publish(branch)
    assert not branch.published
    assert world.notes.lines == {}
    check(world.store)
    world.notes.full = False
    world.lineage.publish(branch)
    assert {line.published for line in world.notes.lines.values()} == {True, False}


def test_publishing_writes_down_what_is_new_and_nothing_else(world: World) -> None:
    parent = world.root()
    world.grow(parent, [1] * 5)
    for count in range(1, 100):
        before = world.notes.writes
        world.lineage.publish(world.fork(parent))
        assert world.notes.writes - before == (2 if count == 1 else 1)
        world.lineage.publish(parent)


def test_published_branches_come_back_with_their_lineage_and_their_pages(world: World) -> None:
    root = world.root()
    world.grow(root, [1] * 10)
    middle, stray = world.fork(root), world.fork(root)
    world.grow(middle, [2] * 3)
    world.grow(stray, [9] * 8)
    leaf = world.fork(middle)
    world.lineage.publish(leaf)
    world.grow(leaf, [3] * 6)

    after = world.next()
    check(after.store)
    found = after.lineage.find(leaf.number, "t")
    assert path(found) == keys([1] * 10 + [2] * 3 + [3] * 6)
    assert (found.depth, found.references, found.end.tail) == (2, 1, leaf.end.tail)
    assert [each.number for each in ancestry(found)] == [leaf.number, middle.number, root.number]
    assert stray.number not in after.lineage.branches
    after.store.evict_everything(after.arena)
    assert set(after.arena.index) == set(path(found))
    after.lineage.withdraw(found)
    assert (after.lineage.branches, after.notes.lines) == ({}, {})


def test_a_branch_whose_pages_are_lost_is_lost_and_its_children_are_not(world: World) -> None:
    parent = world.root()
    world.grow(parent, [1] * 4)
    child = world.fork(parent)
    world.grow(parent, [2] * 4)
    world.lineage.publish(parent)
    world.lineage.publish(child)

    after = world.next(lost=frozenset(keys([1] * 4 + [2] * 4)[1:]))
    check(after.store)
    assert path(after.lineage.find(child.number, "t")) == keys([1] * 4)
    assert not after.lineage.find(parent.number, "t").held


STEPS = st.lists(
    st.tuples(st.sampled_from(["fork", "grow", "publish", "withdraw", "drop", "evict"]), st.integers(0, 100)),
    max_size=40,
)


@settings(deadline=None)
@given(steps=STEPS, chance=st.randoms(use_true_random=False))
def test_what_was_published_at_any_time_is_what_comes_back(
    steps: list[tuple[str, int]], chance: Random
) -> None:
    world = World()
    world.root()
    for what, which in steps:
        held = [each for each in world.lineage.branches.values() if each.held]
        if not held:
            break
        step(world, held[which % len(held)], what, chance)
    published = {each.number: path(each) for each in world.lineage.branches.values() if each.published}
    lines = {number: [a.number for a in ancestry(world.lineage.branches[number])] for number in published}

    after = world.next()
    check(after.store)
    assert {each.number: path(each) for each in after.lineage.branches.values() if each.held} == published
    assert {n: [a.number for a in ancestry(after.lineage.branches[n])] for n in published} == lines
    assert after.notes.lines.keys() == after.lineage.branches.keys()


def step(world: World, branch: Branch, what: str, chance: Random) -> None:
    if what == "fork":
        world.fork(branch)
    elif what == "grow":
        with contextlib.suppress(ArenaFull):
            world.grow(branch, [chance.randrange(2) for _ in range(chance.randrange(1, 6))])
    elif what == "publish":
        world.lineage.publish(branch)
    elif what == "withdraw":
        world.lineage.withdraw(branch)
    elif what == "drop" and branch.holders:
        world.lineage.release(branch)
    elif what == "evict":
        world.store.evict_everything(world.arena)
