"""Boundaries of groups in the store: committed, held and evicted as a whole, whatever else shares their pages."""

import pytest
from hypothesis import HealthCheck, given, settings

from nexuskv.errors import NotReserved, ParentMissing
from tests.core.group_life import INDEX_ENTRIES, LENGTH, STEPS, Life, Step, chain, run
from tests.core.recorder import Recorder


def new(capacity: int = INDEX_ENTRIES) -> Life:
    return Life(Recorder(capacity))


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_a_boundary_is_there_as_a_whole_or_not_at_all(steps: list[Step]) -> None:
    life = new()
    for number, step in enumerate(steps, start=1):
        held = {entry for hit in life.hits for entry in hit}
        before = life.resident()
        run(life, number, step)
        life.verify()
        if step[0] not in ("everything", "let go"):
            assert held & before <= life.resident(), "a page in use was evicted"
    for reservation in life.open:
        reservation.abort()
    for hit in list(life.hits):
        life.let_go(hit)
    life.verify()
    for arena in life.arenas:
        life.store.evict_everything(arena)
    assert not life.resident()
    assert not life.readers.records
    assert all(len(arena.pool) == arena.pool.capacity for arena in life.arenas)


def test_pages_of_every_member_go_with_the_last_boundary() -> None:
    life = new()
    reservation = life.write_group(1, 0, 0, 3)
    assert reservation is not None
    life.commit(reservation, 3)
    attention, checkpoint, _ = life.arenas
    assert (len(attention.index), len(checkpoint.index)) == (6, 3)

    evicted = life.store.evict(checkpoint, 1)
    assert evicted == (3, 2 * attention.slot_bytes + checkpoint.slot_bytes, 0)
    assert list(attention.index) == chain(0, 0, 4)
    assert list(checkpoint.index) == chain(1, 0, 2)
    evicted = life.store.evict(attention, 1)
    assert (evicted.pages, len(attention.index), len(checkpoint.index)) == (3, 2, 1)
    life.verify()


def test_a_pin_on_one_page_holds_the_boundary_and_those_before_it() -> None:
    life = new()
    reservation = life.write_group(1, 0, 0, 3)
    assert reservation is not None
    life.commit(reservation, 3)
    _, [held] = life.store.pin(life.arenas[1], chain(1, 0, 2))
    for arena in life.arenas:
        life.store.evict(arena, 100 * arena.slot_bytes)
    assert (len(life.arenas[0].index), len(life.arenas[1].index)) == (4, 2)
    held.arena.unpin([held])
    life.store.evict(life.arenas[1], 100 * held.arena.slot_bytes)
    assert not life.resident()


def test_only_absent_pages_are_written_and_what_was_there_goes_with_them() -> None:
    life = new()
    life.write_single(1, 0, 0, 3)
    reservation = life.write_group(2, 0, 0, 2)
    assert reservation is not None
    assert [len(each.fresh) for each in reservation.boundaries] == [1, 2]
    life.store.evict(life.arenas[0], 100 * SLOT)
    assert len(life.arenas[0].index) == 3, "what a boundary being written needs was evicted"
    life.store.evict_everything(life.arenas[0])
    assert len(life.arenas[0].index) == 3

    life.commit(reservation, 2)
    life.verify()
    life.store.evict(life.arenas[1], 100 * life.arenas[1].slot_bytes)
    assert not life.resident()


SLOT = 512


def test_groups_that_share_pages_share_their_end() -> None:
    life = new()
    for which in (1, 0):  # 16-token boundaries of attention and window, then 32-token ones with a checkpoint
        reservation = life.write_group(1 + which, which, 0, 2 + 2 * which)
        assert reservation is not None
        life.commit(reservation, LENGTH)
    life.verify()
    life.store.evict(life.arenas[2], 1)
    assert [len(arena.index) for arena in life.arenas] == [2, 1, 2]
    life.store.evict(life.arenas[1], 1)
    assert not life.resident()


def test_an_aborted_boundary_leaves_what_was_there_alone() -> None:
    life = new()
    life.write_single(1, 0, 0, 2)
    reservation = life.write_group(2, 0, 0, 2)
    assert reservation is not None
    life.open.remove(reservation)
    reservation.abort()
    assert [len(arena.index) for arena in life.arenas] == [2, 0, 0]
    assert life.store.evict(life.arenas[0], 1).pages == 1, "untied pages go one by one"
    life.verify()


def test_boundaries_that_others_are_writing_are_not_granted() -> None:
    life = new()
    first = life.write_group(1, 0, 0, 1)
    second = life.write_group(2, 1, 1, 3)  # its first two pages of attention are those of the first
    assert first is not None
    assert second is not None
    assert second.boundaries == []
    life.commit(first, 1)
    third = life.write_group(3, 1, 1, 3)
    assert third is not None
    assert [len(each.fresh) for each in third.boundaries] == [1, 1, 2]


def test_commits_are_checked() -> None:
    life = new()
    reservation = life.write_group(1, 0, 0, 3)
    assert reservation is not None
    with pytest.raises(ParentMissing, match=r"boundary 1 .* the one before it first"):
        reservation.commit([1], rest=False)
    with pytest.raises(NotReserved, match="there is none at 3"):
        reservation.commit([3], rest=False)
    assert reservation.commit([0], rest=False) == 1
    with pytest.raises(NotReserved, match="committed already"):
        reservation.commit([0], rest=False)
    with pytest.raises(NotReserved, match="committed already"):
        reservation.commit([1, 1], rest=False)
    assert reservation.commit([], rest=True) == 3


def test_a_member_without_room_leaves_the_others_nothing() -> None:
    life = new(capacity=5)
    # Four pages of attention fit into the index, two checkpoints beside them do not.
    assert life.write_group(1, 0, 0, 2) is None
    assert not life.readers.records
    assert all(len(arena.pool) == arena.pool.capacity for arena in life.arenas)
