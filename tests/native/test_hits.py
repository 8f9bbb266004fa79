"""A hit, seen from the engine: what is found, what is pinned, what a pin promises."""

import random
import threading

import pytest

from nexuskv.errors import Closed, NexusError
from nexuskv.native import _core
from tests.native.objects import PAGE_BYTES, SEGMENT, SLOT_BYTES, Objects, key, keys


def test_the_leading_resident_run_is_found(objects: Objects) -> None:
    objects.publish(1, 2, 3, 5)
    reader = objects.reader()

    assert reader.lookup(keys(1, 2, 3)) == 3
    assert reader.lookup(keys(1, 2, 4, 3)) == 2
    assert reader.lookup(keys(4, 1)) == 0
    assert reader.lookup([]) == 0


def test_keys_come_as_a_list_or_side_by_side(objects: Objects) -> None:
    objects.publish(1, 2)
    reader = objects.reader()

    assert reader.lookup(b"".join(keys(1, 2))) == 2
    assert reader.lookup(memoryview(b"".join(keys(1, 7)))) == 1
    assert reader.lookup(tuple(keys(1, 2))) == 2


@pytest.mark.parametrize("wrong", [[b"short"], ["text" * 8], [1], b"x" * 33])
def test_a_key_of_another_length_is_refused(objects: Objects, wrong: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32"):
        objects.reader().lookup(wrong)


def test_a_long_run_over_a_full_table_is_found_whole() -> None:
    with Objects(5000, 5000) as objects:
        objects.publish(*range(5000))
        reader = objects.reader()
        shuffled = list(range(5000))
        random.Random(1).shuffle(shuffled)

        assert reader.lookup(keys(*shuffled)) == 5000
        assert reader.lookup(keys(*shuffled[:3000], 9999, *shuffled[3000:])) == 3000
        with reader.pin(keys(*shuffled)) as pins:
            assert [offset // SLOT_BYTES for _, offset, _ in pins.extents()] == shuffled


def test_a_pinned_page_says_where_it_lies(objects: Objects) -> None:
    objects.publish(6, 7)

    with objects.reader().pin(keys(6, 7, 8)) as pins:
        assert len(pins) == 2
        assert pins[1] == (SEGMENT, 7 * SLOT_BYTES, PAGE_BYTES, 16)
        assert pins.extents() == [(SEGMENT, n * SLOT_BYTES, PAGE_BYTES) for n in (6, 7)]
        assert (pins.tokens, pins.segments(), pins.valid()) == (32, {SEGMENT}, 2)
        with pytest.raises(IndexError):
            _ = pins[2]


def test_pages_of_segments_that_are_not_mapped_are_counted_from_the_first_on(objects: Objects) -> None:
    objects.publish(1, 2)
    objects.writer.add_segment(4, 1, 4, SLOT_BYTES, PAGE_BYTES, 4 * SLOT_BYTES, b"d" * 32)
    objects.writer.publish([(key(3), b"", 4, 0, PAGE_BYTES, 16, 0, 0, 0)])

    with objects.reader().pin(keys(1, 3, 2)) as pins:
        assert pins.segments() == {SEGMENT, 4}
        assert pins.unreadable({SEGMENT: "mapped", 4: "mapped"}) == 0
        assert pins.unreadable({SEGMENT: "mapped"}) == 2
        assert pins.unreadable({4: "mapped"}) == 3


def test_nothing_resident_is_an_empty_hit(objects: Objects) -> None:
    with objects.reader().pin(keys(1, 2)) as pins:
        assert (len(pins), pins.extents(), pins.segments(), pins.tokens) == (0, [], set(), 0)


def test_a_closed_hit_is_told_from_an_empty_one(objects: Objects) -> None:
    objects.publish(1)
    pins = objects.reader().pin(keys(1))
    pins.release()
    pins.release()

    assert pins.closed
    for use in (pins.extents, pins.segments, pins.valid, lambda: pins[0]):
        with pytest.raises(Closed, match="match again"):
            use()


def test_a_pinned_page_is_not_given_away(objects: Objects) -> None:
    buckets = objects.publish(1, 2)
    array = _core.PinArray(objects.pins)
    pins = objects.reader().pin(keys(1))
    assert objects.writer.retire(buckets) == 2

    assert objects.writer.reclaim(buckets, [array]) == [buckets[1]]
    assert pins.valid() == 1
    pins.release()
    assert objects.writer.reclaim(buckets, [array]) == [buckets[0]]


def test_a_retiring_page_is_no_hit_any_more(objects: Objects) -> None:
    buckets = objects.publish(1)
    reader = objects.reader()
    with reader.pin(keys(1)):
        objects.writer.retire(buckets)
        objects.writer.reclaim(buckets, [_core.PinArray(objects.pins)])

        assert reader.lookup(keys(1)) == 0
        assert len(reader.pin(keys(1))) == 0
        assert list(reader.status(keys(1))) == [_core.BEING_EVICTED]
        assert objects.publish(1)[0] not in buckets  # the key may come back meanwhile, elsewhere
        assert reader.lookup(keys(1)) == 1


def test_the_end_of_the_last_reference_ends_the_pin_with_a_warning(objects: Objects) -> None:
    objects.publish(1, 2)
    array = _core.PinArray(objects.pins)
    pins = objects.reader().pin(keys(1, 2))  # the reader itself has no other reference than the pins'
    assert array.held == 2

    pins.truncate(1)
    assert (array.held, len(pins)) == (1, 1)
    with pytest.warns(ResourceWarning, match="use it in a with"):
        del pins

    assert array.held == 0


def test_a_full_pin_array_is_a_clear_error_and_pins_nothing(objects: Objects) -> None:
    objects.publish(*range(100))
    reader, array = objects.reader(), _core.PinArray(objects.pins)
    with reader.pin(keys(*range(60))):
        with pytest.raises(_core.PinsFull, match="close hits that are no longer read") as refusal:
            reader.pin(keys(*range(5)))

        assert isinstance(refusal.value, NexusError)
        assert array.held == 60
        assert array.counts[2] == 1
    with reader.pin(keys(*range(64))) as pins:
        assert len(pins) == 64
    with pytest.raises(_core.PinsFull):
        reader.pin(keys(*range(100)))  # two blocks: the first had found room
    assert array.held == 0


def test_what_is_being_written_is_told_from_what_is_absent(objects: Objects) -> None:
    objects.publish(1)
    bucket = objects.reserve(2)
    reader = objects.reader()

    assert list(reader.status(keys(1, 2, 3))) == [_core.PRESENT, _core.BEING_WRITTEN, _core.ABSENT]
    assert reader.lookup(keys(1, 2)) == 1
    assert objects.writer.commit(bucket) == 1
    assert reader.lookup(keys(1, 2)) == 2


def test_hits_refresh_pages_without_a_message(objects: Objects) -> None:
    buckets = objects.publish(1, 2, 3)
    reader = objects.reader()
    assert objects.writer.touched() == []

    reader.pin(keys(1, 2)).release()
    reader.lookup(keys(3))

    assert sorted(objects.writer.touched()) == sorted(buckets[:2])
    assert objects.writer.touched() == []


def test_hits_and_misses_are_counted_for_the_daemon(objects: Objects) -> None:
    objects.publish(1, 2)
    reader, array = objects.reader(), _core.PinArray(objects.pins)
    for wanted in (keys(1, 2), keys(1, 5), keys(6)):
        reader.pin(wanted).release()

    assert array.counts == (3, 2, 0)


def test_an_abandoned_index_sends_its_clients_away(objects: Objects) -> None:
    objects.publish(1)
    reader = objects.reader()
    pins = reader.pin(keys(1))
    objects.writer.set_epoch(8)
    assert (reader.epoch, reader.lookup(keys(1))) == (8, 1)

    objects.writer.set_moved()

    assert reader.epoch == 0
    for use in (reader.lookup, reader.pin, reader.status):
        with pytest.raises(_core.Moved, match="attach anew"):
            use(keys(1))
    assert pins.valid() == 1  # what is open stays open
    pins.release()


def test_the_directory_tells_where_a_page_can_be_mapped(objects: Objects) -> None:
    reader = objects.reader()
    row = (SEGMENT, 1, 100, SLOT_BYTES, PAGE_BYTES, 100 * SLOT_BYTES, b"d" * 32)

    assert reader.segment(SEGMENT) == row
    assert reader.segment(SEGMENT + 8) is None
    assert objects.writer.segments() == [row]
    objects.writer.remove_segment(SEGMENT)
    assert reader.segment(SEGMENT) is None


def test_threads_share_an_attachment(objects: Objects) -> None:
    objects.publish(*range(20))
    reader, array = objects.reader(), _core.PinArray(objects.pins)
    wrong: list[object] = []

    def use(seed: int) -> None:
        choice = random.Random(seed)
        for _ in range(500):
            first = choice.randrange(20)
            with reader.pin(keys(*range(first, 20))) as pins:
                found = [offset // SLOT_BYTES for _, offset, _ in pins.extents()]
            if found != list(range(first, 20)):
                wrong.append(found)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert array.held == 0


def test_keys_that_differ_in_one_bit_are_not_confused(objects: Objects) -> None:
    objects.publish(1)
    reader = objects.reader()
    for byte in range(32):
        other = bytearray(key(1))
        other[byte] ^= 1
        assert reader.lookup(bytes(other)) == 0
