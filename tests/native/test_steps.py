"""The daemon's steps: reserve, commit, abort, retire, reclaim, and what each refuses."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nexuskv.native import _core
from nexuskv.native.rows import Record
from tests.native.objects import PAGE_BYTES, SEGMENT, SLOT_BYTES, Objects, key, keys, record


def test_an_entry_goes_through_its_states(objects: Objects) -> None:
    writer, reader = objects.writer, objects.reader()
    (bucket,) = objects.reserve(1, owner=7)
    assert writer.read(bucket)[-1] == _core.WRITING
    assert (writer.occupied, writer.live) == (1, 0)

    assert writer.commit([bucket], [99]) == 1
    entry = (key(1), b"", SEGMENT, SLOT_BYTES, PAGE_BYTES, 16, 7, 99, 1, bucket, _core.LIVE)
    assert writer.read(bucket) == entry
    assert writer.find(key(1)) == bucket
    assert (writer.occupied, writer.live) == (1, 1)

    assert writer.retire([bucket]) == 1
    assert (writer.occupied, writer.live) == (1, 0)
    assert writer.reclaim([bucket], []) == [bucket]
    assert (writer.occupied, writer.live) == (0, 0)
    assert writer.find(key(1)) is None
    assert list(reader.status(keys(1))) == [_core.ABSENT]


def test_each_step_starts_from_its_own_state(objects: Objects) -> None:
    writer = objects.writer
    (bucket,) = objects.reserve(1)
    assert writer.retire([bucket]) == 0
    assert writer.reclaim([bucket], []) == []
    assert writer.commit([bucket]) == 1
    assert writer.commit([bucket]) == 0
    assert writer.abort([bucket]) == 0
    assert writer.reclaim([bucket], []) == []
    assert writer.retire([bucket, bucket, 10**6]) == 1
    assert writer.reclaim([bucket, bucket, 10**6], []) == [bucket]


def test_a_page_that_somebody_reads_is_put_back(objects: Objects) -> None:
    writer, reader = objects.writer, objects.reader()
    (bucket,) = objects.publish(1)
    pins = reader.pin(keys(1))
    assert writer.revive([bucket]) == 0
    writer.retire([bucket])
    assert len(reader.pin(keys(1))) == 0

    assert writer.revive([bucket]) == 1
    assert (writer.occupied, writer.live) == (1, 1)
    with_both = reader.pin(keys(1))
    assert len(with_both) == 1
    pins.release()
    with_both.release()
    writer.retire([bucket])
    objects.publish(1)
    assert writer.revive([bucket]) == 0, "two pages of one key"


def test_an_aborted_entry_was_never_there(objects: Objects) -> None:
    buckets = objects.reserve(1, 2)

    assert objects.writer.abort(buckets) == 2
    assert list(objects.reader().status(keys(1, 2))) == [_core.ABSENT] * 2
    assert objects.writer.occupied == 0


def test_a_key_has_one_place(objects: Objects) -> None:
    assert objects.reserve(1, 1)[1] == _core.EXISTS
    objects.publish(2)
    assert objects.publish(2) == [_core.EXISTS]


def test_a_full_index_says_so(objects: Objects) -> None:
    buckets = objects.publish(*range(100))
    assert min(buckets) >= 0

    assert objects.publish(100) == [_core.FULL]
    objects.writer.retire(buckets[:1])
    assert objects.publish(100) == [_core.FULL]  # what retires still takes its place
    objects.writer.reclaim(buckets[:1], [])
    assert objects.publish(100)[0] >= 0


def test_ticks_order_publications(objects: Objects) -> None:
    first, second = objects.publish(1, 2)
    (third,) = objects.writer.publish([record(3, tick=50)])
    (fourth,) = objects.publish(4)

    ticks = [objects.writer.read(bucket)[8] for bucket in (first, second, third, fourth)]
    assert ticks == [1, 2, 50, 51]
    assert objects.writer.tick == 51


def test_the_parent_is_kept(objects: Objects) -> None:
    (bucket,) = objects.writer.publish([record(2, parent=key(1))])

    assert objects.writer.read(bucket)[1] == key(1)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (("short", b"", 0, 0, 0, 0, 0, 0, 0), ValueError),
        ((b"k" * 32, b"short", 0, 0, 0, 0, 0, 0, 0), ValueError),
        ((b"k" * 32, b"", -1, 0, 0, 0, 0, 0, 0), OverflowError),
        ((b"k" * 32, b"", 2**32, 0, 0, 0, 0, 0, 0), OverflowError),
        ((b"k" * 32, b"", 0, "0", 0, 0, 0, 0, 0), TypeError),
        ((b"k" * 32,), TypeError),
        ("no tuple", TypeError),
    ],
)
def test_a_wrong_record_is_an_error_and_writes_nothing(
    objects: Objects, wrong: Record, error: type[Exception]
) -> None:
    with pytest.raises(error):
        objects.writer.publish([record(1), wrong])
    assert objects.writer.occupied == 0


@pytest.mark.parametrize("offset", [1, 63, 65, 2**38])
def test_an_offset_that_no_row_can_hold_is_refused(objects: Objects, offset: int) -> None:
    wrong = (key(1), b"", SEGMENT, offset, PAGE_BYTES, 16, 0, 0, 0)

    assert objects.writer.publish([wrong])[0] < 0
    assert objects.writer.occupied == 0


def test_rows_of_the_directory_are_not_shared(objects: Objects) -> None:
    row = (1, 10, 64, 64, 640, b"d" * 32)
    with pytest.raises(_core.FullError):
        objects.writer.add_segment(SEGMENT, *row)
    with pytest.raises(_core.FullError):
        objects.writer.add_segment(SEGMENT + 8, *row)
    objects.writer.add_segment(SEGMENT + 9, *row)
    with pytest.raises(ValueError, match="not valid"):
        objects.writer.add_segment(0, 1, 11, 64, 64, 640, b"d" * 32)  # more slots than bytes
    with pytest.raises(ValueError, match="32 bytes"):
        objects.writer.add_segment(0, *row[:-1], b"short")
    with pytest.raises(ValueError, match="not valid"):
        objects.writer.remove_segment(0)


class Table(RuleBasedStateMachine):
    """The index against a dict, with one reader that pins and lets go."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = Objects(30, 64)
        self.reader = self.objects.reader()
        self.array = _core.PinArray(self.objects.pins)
        self.live: dict[int, int] = {}
        self.retiring: dict[int, int] = {}
        self.free = list(range(30))
        self.held: list[tuple[list[int], _core.Pins]] = []

    @precondition(lambda self: self.free)
    @rule(number=st.integers(0, 60))
    def publish(self, number: int) -> None:
        slot = self.free[-1]
        entry = (key(number), b"", SEGMENT, slot * SLOT_BYTES, PAGE_BYTES, 16, 0, 0, 0)
        (bucket,) = self.objects.writer.publish([entry])
        if number in self.live:
            assert bucket == _core.EXISTS
        else:
            self.free.pop()
            self.live[number] = bucket

    @precondition(lambda self: self.live)
    @rule(choice=st.randoms())
    def retire(self, choice: random.Random) -> None:
        for number in choice.sample(sorted(self.live), min(3, len(self.live))):
            bucket = self.live.pop(number)
            assert self.objects.writer.retire([bucket]) == 1
            self.retiring[bucket] = number

    @rule()
    def reclaim(self) -> None:
        pinned = {offset for _, pins in self.held for _, offset, _ in pins.extents()}
        slots = {bucket: self.objects.writer.read(bucket)[3] for bucket in self.retiring}
        freed = self.objects.writer.reclaim(list(self.retiring), [self.array])
        assert set(freed) == {bucket for bucket, offset in slots.items() if offset not in pinned}
        for bucket in freed:
            del self.retiring[bucket]
            self.free.append(slots[bucket] // SLOT_BYTES)

    @precondition(lambda self: len(self.held) < 8)
    @rule(wanted=st.lists(st.integers(0, 60), max_size=6, unique=True))
    def pin(self, wanted: list[int]) -> None:
        pins = self.reader.pin(keys(*wanted))
        resident = next((i for i, number in enumerate(wanted) if number not in self.live), len(wanted))
        assert len(pins) == resident
        self.held.append((wanted[:resident], pins))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        _, pins = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        assert pins.valid() == len(pins)
        pins.release()

    @invariant()
    def the_table_says_what_the_dict_says(self) -> None:
        status = self.reader.status(keys(*range(61)))
        assert {number for number in range(61) if status[number] == _core.PRESENT} == set(self.live)
        assert self.objects.writer.live == len(self.live)
        assert self.objects.writer.occupied == len(self.live) + len(self.retiring)

    def teardown(self) -> None:
        for _, pins in self.held:
            pins.release()
        assert self.array.held == 0
        self.objects.__exit__(None, None, None)


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
