"""A new daemon over a dead one's index: what it keeps, what it drops, and that clients notice nothing."""

import mmap
import os
import struct

import pytest

from nexuskv.native import _core
from tests.native.objects import PAGE_BYTES, SEGMENT, SLOT_BYTES, Objects, key, keys, record

HEADER_BYTES = 4096
DIRECTORY_BYTES = 8 * 128
ROW_BYTES = 64
HOT = HEADER_BYTES + (DIRECTORY_BYTES + 4095) // 4096 * 4096


def poke(objects: Objects, offset: int, value: int) -> None:
    """Overwrites eight bytes of the index."""
    os.pwrite(objects.index, struct.pack("<Q", value), offset)


def hot(bucket: int) -> int:
    return HOT + bucket * ROW_BYTES


def test_everything_committed_is_kept_and_told(objects: Objects) -> None:
    buckets = objects.writer.publish([record(n, parent=key(n - 1), owner=5) for n in range(1, 40)])
    reader = objects.reader()
    pins = reader.pin(keys(1, 2))
    del objects.writer

    writer = _core.Writer(objects.index, objects.touch)

    assert writer.recover() == (39, 0, 0, 0, 0)
    cursor, entries = writer.entries(0, 1000)
    assert cursor == 0
    assert sorted(entry[9] for entry in entries) == sorted(buckets)
    by_key = {entry[0]: entry for entry in entries}
    assert by_key[key(7)][1:8] == (key(6), SEGMENT, 7 * SLOT_BYTES, PAGE_BYTES, 16, 5, 7)
    assert reader.lookup(keys(*range(1, 40))) == 39
    assert pins.valid() == 2
    pins.release()


def test_entries_come_in_portions(objects: Objects) -> None:
    objects.publish(*range(50))
    cursor, seen = 0, list[int]()
    while True:
        cursor, entries = objects.writer.entries(cursor, 7)
        seen += [entry[9] for entry in entries]
        assert len(entries) <= 7
        if not cursor:
            break
    assert len(seen) == len(set(seen)) == 50


def test_what_was_being_written_is_told_with_its_owner(objects: Objects) -> None:
    objects.publish(1)
    (bucket,) = objects.reserve(2, owner=77)

    assert objects.writer.recover() == (1, 0, 1, 0, 0)
    (writing,) = [e for e in objects.writer.entries(0, 10)[1] if e[10] == _core.WRITING]
    assert (writing[0], writing[6], writing[9]) == (key(2), 77, bucket)
    assert objects.writer.abort([bucket]) == 1


def test_ties_are_told_and_tear_nothing(objects: Objects) -> None:
    live = objects.publish(1, 2)
    (writing,) = objects.reserve(3, owner=77)
    (retiring,) = objects.publish(4)
    objects.writer.retire([retiring])
    word = 1 << 63 | 3 << 40 | 12

    assert objects.writer.tie([*live, writing, retiring, 99], word) == 3
    assert objects.writer.recover() == (2, 1, 1, 0, 0)
    owners = {entry[9]: entry[6] for entry in objects.writer.entries(0, 10)[1]}
    assert owners == {live[0]: word, live[1]: word, writing: word, retiring: 0}
    assert objects.reader().lookup(keys(1, 2)) == 2


def test_what_was_being_evicted_waits_for_old_pins(objects: Objects) -> None:
    buckets = objects.publish(1)
    pins = objects.reader().pin(keys(1))
    objects.writer.retire(buckets)
    writer = _core.Writer(objects.index, objects.touch)

    assert writer.recover() == (0, 1, 0, 0, 0)
    assert [e[10] for e in writer.entries(0, 10)[1]] == [_core.RETIRING]
    array = _core.PinArray(objects.pins)
    assert writer.reclaim(buckets, [array]) == []
    assert pins.valid() == 1
    pins.release()
    assert writer.reclaim(buckets, [array]) == buckets


@pytest.mark.parametrize("offset", range(16, 64, 8))
def test_a_torn_row_is_dropped_and_the_others_stay(objects: Objects, offset: int) -> None:
    buckets = objects.publish(1, 2, 3)
    poke(objects, hot(buckets[1]) + offset, 0x5555)

    assert objects.writer.recover() == (2, 0, 0, 1, 0)
    reader = objects.reader()
    assert [reader.lookup(keys(n)) for n in (1, 2, 3)] == [1, 0, 1]
    assert objects.writer.occupied == 2
    assert objects.writer.torn_dropped == 1


def test_wrong_hops_are_mended(objects: Objects) -> None:
    objects.publish(*range(100))
    for bucket in range(objects.writer.bucket_count):
        poke(objects, hot(bucket) + 8, 0xF0F0 * (bucket % 3))
    reader = objects.reader()
    assert reader.lookup(keys(*range(100))) < 100

    assert objects.writer.recover() == (100, 0, 0, 0, 0)
    assert reader.lookup(keys(*range(100))) == 100


def test_two_entries_never_share_a_slot(objects: Objects) -> None:
    same = [(key(n), b"", SEGMENT, 0, PAGE_BYTES, 16, 0, 0, 0) for n in (1, 2)]
    objects.writer.publish(same)

    assert objects.writer.recover()[0::3] == (1, 1)


@pytest.mark.parametrize(
    "outside",
    [
        (SEGMENT, 100 * SLOT_BYTES, PAGE_BYTES),
        (SEGMENT, 64, PAGE_BYTES),
        (SEGMENT, 0, SLOT_BYTES + 1),
        (SEGMENT + 1, 0, PAGE_BYTES),
        (SEGMENT + 8, 0, PAGE_BYTES),
    ],
)
def test_an_entry_outside_its_segment_is_dropped(objects: Objects, outside: tuple[int, int, int]) -> None:
    objects.writer.publish([(key(1), b"", *outside, 16, 0, 0, 0), record(2)])

    assert objects.writer.recover() == (1, 0, 0, 1, 0)


def test_a_torn_segment_row_takes_its_entries_with_it(objects: Objects) -> None:
    objects.publish(1, 2)
    poke(objects, HEADER_BYTES + SEGMENT * 128 + 16, 12345)

    assert objects.writer.recover() == (0, 0, 0, 2, 1)
    assert objects.writer.segments() == []


def test_random_damage_never_leaves_a_table_that_lies(objects: Objects) -> None:
    objects.publish(*range(100))
    size = os.fstat(objects.index).st_size
    with mmap.mmap(objects.index, size) as memory:
        for at in range(HOT, size - 8, 777):
            memory[at] ^= 0xFF
    live, retiring, writing, torn, _ = objects.writer.recover()

    assert torn > 0
    _, entries = objects.writer.entries(0, 1000)
    assert len(entries) == live + retiring + writing == objects.writer.occupied
    reader = objects.reader()
    present = [entry for entry in entries if entry[10] == _core.LIVE]
    for entry in present:
        with reader.pin([entry[0]]) as pins:
            assert pins[0] == entry[2:6]
    assert objects.writer.recover()[:4] == (live, retiring, writing, 0)
