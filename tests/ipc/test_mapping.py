"""A mapped segment: what is refused, what may be written, how long it lives."""

import gc
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from nexuskv.contract import slot_bytes
from nexuskv.errors import BadRequest, RemoteError
from nexuskv.ipc.mapping import MappedSegment
from tests.support.pages import small

LAYOUT = small(kib=4).page_layout
SLOT = slot_bytes(LAYOUT.nbytes)
SLOTS = 4
Opened = Callable[[], int]
OBJECT = Path(f"/dev/shm/nexuskv-test-{os.getpid()}-mapping")


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens descriptors of one shared-memory object; whoever maps it closes them."""
    OBJECT.write_bytes(bytes(SLOTS * SLOT))
    yield lambda: os.open(OBJECT, os.O_RDWR)
    OBJECT.unlink()


def mapped(descriptor: int, *, writable: bool) -> MappedSegment:
    return MappedSegment(descriptor, LAYOUT, SLOTS, SLOT, writable=writable)


def maps_of_the_object() -> int:
    return Path("/proc/self/maps").read_text().count(str(OBJECT))


def test_what_a_writer_writes_a_reader_sees_in_place(opened: Opened) -> None:
    writer, reader = mapped(opened(), writable=True), mapped(opened(), writable=False)
    writer.tensor("key", 2)[...] = 7

    assert (reader.tensor("key", 2) == 7).all()
    assert not reader.tensor("key", 1).any()
    assert not reader.tensor("value", 2).any()
    assert reader.pages[2][: LAYOUT.tensors[0].nbytes].any()


def test_tensors_lie_where_the_layout_says(opened: Opened) -> None:
    segment = mapped(opened(), writable=True)
    for slot in range(SLOTS):
        segment.pages[slot][...] = np.arange(LAYOUT.nbytes) % (251 + slot)

    for place in LAYOUT.tensors:
        for slot in range(SLOTS):
            tensor = segment.tensor(place.name, slot)
            assert (tensor.shape, tensor.dtype) == (place.shape, place.dtype)
            expected = segment.pages[slot][place.offset : place.offset + place.nbytes]
            assert np.array_equal(tensor.view(np.uint8).ravel(), expected)


def test_a_readers_arrays_cannot_be_written_or_made_writable(opened: Opened) -> None:
    reader = mapped(opened(), writable=False)
    for array in (reader.pages[0], reader.tensor("key", 0)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.parametrize("slots", [SLOTS + 1, 1 << 40])
def test_an_object_smaller_than_announced_is_refused(opened: Opened, slots: int) -> None:
    descriptor = opened()

    with pytest.raises(RemoteError, match=f"segment of {SLOTS * SLOT} bytes, too small for {slots} slots"):
        MappedSegment(descriptor, LAYOUT, slots, SLOT, writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)  # closed also when it is refused


def test_slots_smaller_than_a_page_are_refused(opened: Opened) -> None:
    with pytest.raises(RemoteError, match="not mapped"):
        MappedSegment(opened(), LAYOUT, SLOTS, SLOT - 64, writable=False)


def test_the_descriptor_is_closed_once_mapped(opened: Opened) -> None:
    descriptor = opened()
    segment = mapped(descriptor, writable=False)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert not segment.pages[SLOTS - 1].any()


def test_an_unknown_tensor_names_those_there_are(opened: Opened) -> None:
    with pytest.raises(BadRequest, match="no tensor 'k': it has key, value"):
        mapped(opened(), writable=False).tensor("k", 0)


def test_the_mapping_lives_as_long_as_an_array_on_it(opened: Opened) -> None:
    writer = mapped(opened(), writable=True)
    writer.pages[3][...] = 9
    page = mapped(opened(), writable=False).pages[3]
    del writer
    gc.collect()
    assert maps_of_the_object() == 1
    assert (page == 9).all()

    del page
    gc.collect()
    assert maps_of_the_object() == 0


def test_a_segment_of_one_short_page_maps(opened: Opened) -> None:
    layout = small(kib=1, page_tokens=4).page_layout
    segment = MappedSegment(opened(), layout, 1, slot_bytes(layout.nbytes), writable=False)

    assert segment.pages[0].shape == (layout.nbytes,)
    assert layout.nbytes < mmap.PAGESIZE
