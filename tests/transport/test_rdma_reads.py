"""From pulls to READs: every byte once and in its place, whatever the chunks; and the books of a send queue."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.errors import LocalError
from nexuskv_transport import KeyedRegion, Pull
from nexuskv_transport.base import Chunk
from nexuskv_transport.rdma.reads import CHAIN, CHAIN_BYTES, Read, Stretch, Window, reads_of

LOCAL, REMOTE = 10_000, 50_000
sizes = st.lists(st.integers(1, 300), min_size=1, max_size=6)


def local_of(lengths: list[int]) -> list[Stretch]:
    starts = [LOCAL + sum(lengths[:index]) for index in range(len(lengths))]
    return [Stretch(*each, 100 + index) for index, each in enumerate(zip(starts, lengths, strict=True))]


def region_of(lengths: list[int]) -> KeyedRegion:
    starts = [
        REMOTE + 2 * sum(lengths[:index]) for index in range(len(lengths))
    ]  # chunks need not be neighbours
    chunks = [Chunk(*each, 200 + index) for index, each in enumerate(zip(starts, lengths, strict=True))]
    return KeyedRegion(1, sum(lengths), tuple(chunks))


def read(id_: int, nbytes: int = 1, *, last: bool = True) -> Read:
    return Read(id_, 0, 0, 0, 0, nbytes, last)


@given(sizes, sizes, st.integers(1, 400), st.data())
def test_each_byte_comes_once_from_where_it_lies(
    here: list[int], there: list[int], message: int, data: st.DataObject
) -> None:
    nbytes = data.draw(st.integers(1, min(sum(here), sum(there))))
    at = data.draw(st.integers(0, sum(here) - nbytes))
    offset = data.draw(st.integers(0, sum(there) - nbytes))
    region, local = region_of(there), local_of(here)
    found = reads_of(
        Pull(7, region, offset, memoryview(bytearray(nbytes))), LOCAL + at, local, region, message
    )

    written = [each.local + index for each in found for index in range(each.nbytes)]
    assert written == list(range(LOCAL + at, LOCAL + at + nbytes))
    remote = [(chunk.address + index, chunk.rkey) for chunk in region.chunks for index in range(chunk.nbytes)]
    asked = [(each.remote + index, each.rkey) for each in found for index in range(each.nbytes)]
    assert asked == remote[offset : offset + nbytes]
    keys = [stretch.key for stretch in local for _ in range(stretch.nbytes)]
    assert [each.lkey for each in found for _ in range(each.nbytes)] == keys[at : at + nbytes]
    assert all(each.nbytes <= message for each in found)
    assert [each.last for each in found] == [False] * (len(found) - 1) + [True]


def test_a_region_whose_chunks_do_not_hold_what_it_declares() -> None:
    region = KeyedRegion(1, 1000, (Chunk(REMOTE, 100, 1),))
    with pytest.raises(LocalError, match="last 50 of 100 bytes"):
        reads_of(Pull(1, region, 50, memoryview(bytearray(100))), LOCAL, local_of([100]), region, 4096)


def test_a_chain_ends_with_the_room_the_count_or_the_bytes() -> None:
    window = Window(CHAIN + 3)
    waiting = deque(read(index) for index in range(100))
    assert [len(window.admit(waiting)[1]) for _ in range(3)] == [CHAIN, 3, 0]
    assert len(waiting) == 100 - CHAIN - 3
    large = deque(read(index, CHAIN_BYTES // 2) for index in range(5))
    assert len(Window(10).admit(large)[1]) == 2


def test_a_completion_speaks_for_all_before_it() -> None:
    window = Window(10)
    window.admit(deque([read(1, last=False), read(1), read(2), read(3)]))
    assert window.complete(2) == [1, 2]
    assert window.admit(deque([read(4)]))[0] == 4
    assert window.complete(4) == [3, 4]
    assert window.complete(4) == []
    assert len(window) == 0


def test_an_error_speaks_for_its_own_and_the_success_of_all_before() -> None:
    window = Window(10)
    window.admit(deque([read(1), read(2, last=False), read(2), read(3)]))
    assert window.fail(1) == ([1], 2)
    assert window.fail(2) == ([], 2)
    assert window.fail(3) == ([], 3)
    assert window.fail(4) == ([], None)
