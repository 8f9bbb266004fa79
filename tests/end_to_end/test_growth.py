"""Memory grows segment by segment within the budget, and moves to the descriptor that needs it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import nexuskv
from nexuskv.protocol.stats import ArenaStats
from tests.support.daemon import Daemon, running
from tests.support.pages import fill, intact, keys, put, small, verified
from tests.support.waiting import until

SEGMENT = 64 * 1024
BUDGET = 16 * SEGMENT
A, B = small("a", kib=4), small("b", kib=8)
"""16 and 8 pages a segment."""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", str(SEGMENT), memory=str(BUDGET)) as daemon:
        yield daemon


def arena(client: nexuskv.Client, name: str) -> ArenaStats:
    return next(arena for arena in client.stats().arenas if arena.descriptor_id == name)


def test_memory_grows_segment_by_segment_up_to_the_budget(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(A, model="m")
    assert client.stats().memory_used == 0
    used: list[int] = []
    for branch in range(40):
        put(cache, keys(cache, 8, branch))
        used.append(client.stats().memory_used)

    assert used == sorted(used)
    assert all(bytes_ % SEGMENT == 0 for bytes_ in used)
    assert used[0] <= 2 * SEGMENT
    assert used[-1] == BUDGET
    assert arena(client, "a").slots == 256
    until(lambda: len([name for name in daemon.objects() if "-data-" in name]) == 16, "all objects are there")


def test_a_reservation_of_many_segments_waits_for_them(client: nexuskv.Client) -> None:
    cache = client.open(A, model="m")

    assert put(cache, keys(cache, 256)) == 256
    assert verified(cache, keys(cache, 256)) == 256


def test_a_chain_grows_into_memory_that_another_descriptor_does_not_use(client: nexuskv.Client) -> None:
    """Its own pages cannot make way for it: it hangs from them."""
    one, other = client.open(A, model="m"), client.open(B, model="m")
    put(other, keys(other, 64))
    put(one, keys(one, 128))
    client.evict("b")

    for length in (200, 256):
        assert put(one, keys(one, length)) > 0
        assert verified(one, keys(one, length)) == length


def test_a_page_larger_than_a_segment_gets_one_of_its_own(client: nexuskv.Client) -> None:
    cache = client.open(small("large", kib=200), model="m")

    assert put(cache, keys(cache, 3)) == 3
    assert verified(cache, keys(cache, 3)) == 3


def test_a_page_larger_than_the_budget(client: nexuskv.Client) -> None:
    cache = client.open(small("huge", kib=2048), model="m")

    with pytest.raises(nexuskv.ArenaFull) as full:
        cache.reserve(keys(cache, 1))
    assert full.value.numbers["needed_bytes"] == 2 << 20
    assert client.stats().memory_used == 0


def test_a_second_descriptor_gets_the_cold_segments_of_the_first(
    daemon: Daemon, client: nexuskv.Client
) -> None:
    first, second = client.open(A, model="m"), client.open(B, model="m")
    for branch in range(16):
        put(first, keys(first, 16, branch))
    assert client.stats().memory_used == BUDGET
    hot = keys(first, 16, branch=15)
    with first.match(hot) as hit:
        for branch in range(4):
            assert put(second, keys(second, 8, branch)) == 8
            assert verified(second, keys(second, 8, branch)) == 8
            assert intact(hit)

    assert client.stats().memory_used <= BUDGET
    assert arena(client, "b").resident == 32
    assert verified(first, hot) == 16
    assert [status.reason for status in first.status(keys(first, 16, branch=0))] == ["evicted"] * 16
    assert verified(first, keys(first, 16, branch=14)) == 16  # only what was needed went, the coldest first
    until(lambda: len([name for name in daemon.objects() if "-data-" in name]) <= 16, "objects are gone, too")


def test_pinned_segments_stay_with_their_descriptor(client: nexuskv.Client) -> None:
    first, second = client.open(A, model="m"), client.open(B, model="m")
    for branch in range(16):
        put(first, keys(first, 16, branch))
    hits = [first.match(keys(first, 16, branch)) for branch in range(16)]
    with pytest.raises(nexuskv.ArenaFull):
        second.reserve(keys(second, 1))
    for hit in hits:
        assert intact(hit)
        hit.close()

    assert put(second, keys(second, 8)) == 8
    assert verified(second, keys(second, 8)) == 8


def test_descriptors_that_take_turns_keep_their_bytes(daemon: Daemon, client: nexuskv.Client) -> None:
    caches = [client.open(small(f"d{kib}", kib=kib), model="m") for kib in (4, 8, 12, 20)]
    with daemon.client() as other:
        for turn in range(60):
            cache = caches[turn % 7 % len(caches)]
            wanted = keys(cache, 1 + turn % 9, branch=turn)
            put(cache, wanted)
            theirs = other.open(cache.descriptor, model="m")
            assert verified(theirs, wanted) == len(wanted)
            assert client.stats().memory_used <= BUDGET

    for cache in caches:
        for turn in range(60):
            verified(cache, keys(cache, 1 + turn % 9, branch=turn))


def test_two_that_want_more_than_half_each_at_once_both_get_an_answer(daemon: Daemon) -> None:
    def reserve(descriptor: nexuskv.Descriptor, pages: int) -> int:
        with daemon.client() as client:
            cache = client.open(descriptor, model="m")
            try:
                with cache.reserve(keys(cache, pages)) as reservation:
                    fill(reservation)
            except nexuskv.ArenaFull:
                return 0
            return verified(cache, keys(cache, pages))

    for _ in range(3):
        with ThreadPoolExecutor() as pool:
            one, two = pool.submit(reserve, A, 160), pool.submit(reserve, B, 80)
            written = (one.result(), two.result())
        assert written != (0, 0)
        with daemon.client() as client:
            client.evict(everything=True)
