"""Objects that are not what they should be, and clients that scribble: a clear error, or harm to nobody else."""

import os
import struct

import pytest

from nexuskv.native import _core
from tests.native.objects import INDEX_ID, Objects, key, keys, memory_file


def overwrite(descriptor: int, offset: int, data: bytes) -> None:
    os.pwrite(descriptor, data, offset)


def test_an_object_of_another_kind_is_refused(objects: Objects) -> None:
    with pytest.raises(_core.LayoutError, match="no NexusKV object"):
        _core.Reader(objects.touch, objects.touch, objects.pins)
    with pytest.raises(_core.LayoutError, match="no NexusKV object"):
        _core.Writer(objects.touch, -1)


def test_the_layout_of_another_release_is_refused_with_what_to_do(objects: Objects) -> None:
    overwrite(objects.index, 8, struct.pack("<I", _core.LAYOUT_VERSION + 1))

    for attach in (objects.reader, lambda: _core.Writer(objects.index, objects.touch)):
        with pytest.raises(_core.LayoutError, match=r"one release on both sides, or restart .* with --fresh"):
            attach()


@pytest.mark.parametrize("keep", [1, 100, 4095, 4096, 8192, -4096])
def test_a_truncated_index_is_refused(objects: Objects, keep: int) -> None:
    size = os.fstat(objects.index).st_size
    del objects.writer
    os.truncate(objects.index, keep if keep > 0 else size + keep)

    with pytest.raises(_core.LayoutError, match="truncated"):
        objects.reader()


@pytest.mark.parametrize("field", range(12, 120, 4))
def test_every_field_of_the_header_is_covered(objects: Objects, field: int) -> None:
    before = os.pread(objects.index, 4, field)
    overwrite(objects.index, field, bytes(byte ^ 0x41 for byte in before))

    with pytest.raises(_core.LayoutError):
        objects.reader()


def test_an_empty_object_is_refused(objects: Objects) -> None:
    empty = memory_file("empty", 0)
    objects.others.append(empty)
    with pytest.raises(_core.LayoutError, match="truncated"):
        _core.Reader(empty, objects.touch, objects.pins)


def test_a_touch_object_that_is_too_small_is_refused(objects: Objects) -> None:
    small = memory_file("touch", 8)
    objects.others.append(small)
    with pytest.raises(_core.LayoutError, match="truncated"):
        _core.Reader(objects.index, small, objects.pins)


def test_pins_of_another_index_are_refused(objects: Objects) -> None:
    with pytest.raises(_core.LayoutError, match="belongs to another index"):
        objects.reader(objects.new_pins(INDEX_ID + 1))


def test_a_pin_object_serves_one_attachment(objects: Objects) -> None:
    objects.publish(1)
    reader = objects.reader()
    with reader.pin(keys(1)), pytest.raises(_core.LayoutError, match="one of your own"):
        objects.reader()


def test_a_closed_descriptor_is_an_os_error(objects: Objects) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        _core.Reader(10**6, objects.touch, objects.pins)


def test_an_index_without_touch_object_works(objects: Objects) -> None:
    objects.publish(1)

    with _core.Reader(objects.index, -1, objects.pins).pin(keys(1)) as pins:
        assert len(pins) == 1


@pytest.mark.parametrize("scribble", [0, 1, 250, 251, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_a_scribbled_pin_array_hurts_only_its_own_pins(objects: Objects, scribble: int) -> None:
    buckets = objects.publish(*range(100))
    mine = objects.reader(objects.new_pins()).pin(keys(*range(10)))
    size = os.fstat(objects.pins).st_size
    overwrite(objects.pins, 0, struct.pack("<Q", scribble) * (size // 8))
    arrays = [_core.PinArray(objects.pins), _core.PinArray(objects.others[1])]
    objects.writer.retire(buckets)

    freed = objects.writer.reclaim(buckets, arrays)

    assert not set(freed) & set(buckets[:10])
    assert len(freed) >= 100 - 10 - 1  # a word that names a bucket delays that one
    assert mine.valid() == 10
    mine.release()


def test_a_high_water_mark_beyond_the_object_is_bounded(objects: Objects) -> None:
    overwrite(objects.pins, 64, struct.pack("<Q", 2**64 - 1))

    assert _core.PinArray(objects.pins).held == 0


def test_scribbled_touch_bits_are_only_hints(objects: Objects) -> None:
    buckets = objects.publish(1, 2)
    overwrite(objects.touch, 0, b"\xff" * os.fstat(objects.touch).st_size)

    assert sorted(objects.writer.touched()) == sorted(buckets)


def test_a_handle_that_was_scribbled_away_is_reported(objects: Objects) -> None:
    objects.publish(1)
    pins = objects.reader().pin(keys(1))
    overwrite(objects.pins, 128, bytes(8))

    assert pins.valid() == 0
    with pytest.raises(RuntimeError, match="not pinned"):
        pins.release()
    assert pins.closed


@pytest.mark.parametrize(
    ("entries", "directory", "identity"), [(0, 8, 1), (100, 0, 1), (100, 8, 0), (2**40, 8, 1)]
)
def test_impossible_sizes_are_refused(objects: Objects, entries: int, directory: int, identity: int) -> None:
    with pytest.raises(ValueError, match="not valid"):
        _core.format_index(
            objects.index,
            max_entries=entries,
            directory_capacity=directory,
            boot_epoch=1,
            index_id=identity,
            instance="a",
            tenant="b",
        )


def test_a_name_that_does_not_fit_is_refused(objects: Objects) -> None:
    with pytest.raises(ValueError, match="not valid"):
        _core.format_index(
            objects.index,
            max_entries=10,
            directory_capacity=8,
            boot_epoch=1,
            index_id=1,
            instance="n" * 64,
            tenant="t",
        )


def test_keys_that_all_want_one_home_fill_their_neighbourhood_and_no_more() -> None:
    with Objects(1000) as objects:
        same = [struct.pack("<4Q", n, 0, 0, 2**64 - n if n else 0) for n in range(70)]  # equal sums, one home
        buckets = objects.writer.publish(
            [(k, b"", 3, n * 4096, 4000, 1, 0, 0, 0) for n, k in enumerate(same)]
        )

        assert buckets[64:] == [_core.FULL] * 6
        assert objects.reader().lookup(same) == 64
        assert objects.reader(objects.new_pins()).lookup([key(1)]) == 0
