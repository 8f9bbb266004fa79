"""What becomes of a branch's tail when it is appended to, in the cases that chance seldom makes."""

import pytest

from nexuskv.errors import ArenaFull, BadRequest, BranchMoved, Busy, NotReserved
from nexuskv_daemon.core.branch import Branch
from nexuskv_daemon.core.check import check
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.growth import grow
from tests.core.test_lineage import World
from tests.core.trees import append, extension, keys, path


@pytest.fixture
def world() -> World:
    return World()


def grown(world: World, count: int) -> Branch:
    branch = world.root()
    world.grow(branch, [1] * count)
    return branch


def test_a_tail_of_its_own_grows_where_it_is(world: World) -> None:
    branch = grown(world, 6)
    slot = branch.end.tip.handle if branch.end.tip else 0
    free = len(world.arena.pool)
    world.grow(branch, [2])

    assert branch.end.tip is not None
    assert (branch.end.tip.handle, len(world.arena.pool)) == (slot, free)
    assert (branch.copies, len(world.arena.index)) == (0, 2)


def test_a_full_arena_has_room_for_a_tail_that_grows_where_it_is(world: World) -> None:
    branch = grown(world, 4 * 8 * 8 - 2)
    assert world.store.memory.budget == world.store.memory.used
    assert not len(world.arena.pool)
    world.grow(branch, [2, 2])
    child = world.fork(branch)
    with pytest.raises(ArenaFull):
        world.grow(child, [3])
    check(world.store)


def test_while_a_tail_grows_nobody_writes_the_page_that_it_was(world: World) -> None:
    branch = grown(world, 4)
    twin = world.fork(branch)
    world.grow(branch, [5, 6])
    growth = append(world.store, branch, world.tokens[branch.number], [7])
    with pytest.raises(Busy, match="the same tokens"):
        append(world.store, twin, world.tokens[twin.number], [5, 6])
    check(world.store)
    growth.abort()

    world.grow(twin, [5, 6])
    assert branch.end.tip is twin.end.tip
    check(world.store)


def test_two_that_append_the_same_share_the_page(world: World) -> None:
    branch = grown(world, 6)
    twin = world.fork(branch)
    world.grow(branch, [2] * 9)
    before = len(world.arena.pool)
    world.grow(twin, [2] * 9)

    assert path(twin) == path(branch) == keys([1] * 6 + [2] * 9)
    assert (len(world.arena.pool), branch.copies, twin.copies) == (before, 1, 0)


def test_what_is_found_resident_stays_until_the_commit(world: World) -> None:
    branch = grown(world, 4)
    twin = world.fork(branch)
    world.grow(branch, [2] * 4)
    growth = append(world.store, twin, [1] * 4, [2] * 4)
    world.lineage.release(branch)
    world.store.evict_everything(world.arena)
    growth.commit([], rest=True)

    assert path(twin) == keys([1] * 4 + [2] * 4)
    check(world.store)


def test_a_page_that_a_reader_takes_up_just_then_is_copied(world: World) -> None:
    branch = grown(world, 6)
    assert branch.end.tip is not None
    tip: Entry = branch.end.tip
    world.readers.pins[tip.handle] += 1
    growth = append(world.store, branch, [1] * 6, [2])

    assert growth.source is tip
    assert world.arena.index[tip.key] is tip
    growth.abort()
    world.readers.pins.clear()
    check(world.store)


def test_an_append_is_of_what_the_branch_is_now(world: World) -> None:
    branch = grown(world, 6)
    with pytest.raises(BranchMoved):
        grow(world.store, branch, b"x" * 32, extension([1] * 6, [2]), 0.0, 1)
    wrong = extension([1] * 6, [2])
    other_keys = wrong._replace(keys=wrong.keys * 2)
    for asked in (wrong._replace(tokens=0), wrong._replace(tokens=2), wrong._replace(tail=b""), other_keys):
        with pytest.raises(BadRequest, match=r"after a tail of 2|page keys of a chain differ"):
            grow(world.store, branch, keys([1] * 6)[-1], asked, 0.0, 1)
    check(world.store)
    assert branch.growth is None


def test_an_append_is_committed_as_a_whole(world: World) -> None:
    branch = grown(world, 4)
    growth = append(world.store, branch, [1] * 4, [2] * 9)
    with pytest.raises(NotReserved, match="as a whole"):
        growth.commit([0], rest=False)
    assert growth.commit([], rest=True) == 3


def test_nothing_hangs_from_a_page_that_is_not_full(world: World) -> None:
    branch = grown(world, 6)
    assert branch.end.tip is not None
    with pytest.raises(BadRequest, match="only partly filled"):
        world.store.reserve(world.arena, [b"k" * 32], branch.end.tip.key, None, 0.0)
    check(world.store)
