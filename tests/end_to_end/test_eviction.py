"""What goes when room is needed, and what never does."""

import random
from collections.abc import Iterator

import pytest

import nexuskv
from tests.end_to_end.conftest import PAGES
from tests.support.daemon import Daemon, running
from tests.support.figures import figures
from tests.support.pages import intact, keys, put, small, verified

SLOTS = 64


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "64KiB", memory=f"{SLOTS * 4}KiB") as daemon:
        yield daemon


def test_heads_of_chains_outlive_their_tails(cache: nexuskv.Cache) -> None:
    for branch in range(4):
        put(cache, keys(cache, 16, branch))
    put(cache, keys(cache, 8, branch=9))

    found = [verified(cache, keys(cache, 16, branch)) for branch in range(4)]
    assert found == [8, 16, 16, 16]  # the oldest chain lost its tail, and nothing else
    assert verified(cache, keys(cache, 8, branch=9)) == 8


def test_a_hit_makes_its_pages_young(cache: nexuskv.Cache) -> None:
    for branch in range(4):
        put(cache, keys(cache, 16, branch))
    with cache.match(keys(cache, 16, branch=0)):
        pass
    put(cache, keys(cache, 16, branch=9))

    assert cache.lookup(keys(cache, 16, branch=0)) == 16
    assert cache.lookup(keys(cache, 16, branch=1)) == 0


def test_a_shared_head_stays_as_long_as_any_of_its_tails(cache: nexuskv.Cache) -> None:
    head = [0] * 32
    tails = [cache.keys(head + [tail] * 16) for tail in range(1, 5)]
    for wanted in tails:
        put(cache, wanted)
    for branch in range(100, 103):
        put(cache, keys(cache, 14, branch))

    lengths = [verified(cache, wanted) for wanted in tails]
    assert all(length >= 8 for length in lengths)
    assert lengths == sorted(lengths)  # the tail used last is the longest


def test_everything_pinned_is_a_full_arena_until_a_hit_closes(
    client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    put(cache, keys(cache, SLOTS))
    with cache.match(keys(cache, SLOTS)) as hit:
        with pytest.raises(nexuskv.ArenaFull, match="Close hits") as full:
            cache.reserve(keys(cache, 1, branch=1))
        assert full.value.numbers["pinned_bytes"] == SLOTS * 4096
        assert full.value.numbers["free_bytes"] == 0
        assert intact(hit)

    assert put(cache, keys(cache, 1, branch=1)) == 1
    assert cache.lookup(keys(cache, SLOTS)) == SLOTS - 1


def test_a_refused_reservation_evicts_nothing(cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, SLOTS // 2, branch=1))
    put(cache, keys(cache, SLOTS // 2, branch=2))
    for pages in (SLOTS + 1, SLOTS * 10):
        with pytest.raises(nexuskv.ArenaFull):
            cache.reserve(keys(cache, pages, branch=3))

    assert cache.lookup(keys(cache, SLOTS // 2, branch=1)) == SLOTS // 2
    assert cache.lookup(keys(cache, SLOTS // 2, branch=2)) == SLOTS // 2


def test_a_chain_is_not_eaten_by_its_own_growth(cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, SLOTS))

    with pytest.raises(nexuskv.ArenaFull):
        cache.reserve(keys(cache, SLOTS + 1))
    assert cache.lookup(keys(cache, SLOTS)) == SLOTS


def test_evict_by_bytes_takes_leaves_first(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, 10))
    evicted = client.evict(nbytes=3 * 4096 - 1)

    assert (evicted.pages, evicted.bytes, evicted.retiring) == (3, 3 * 4096, 0)
    assert cache.lookup(keys(cache, 10)) == 7


def test_evict_of_all_leaves_what_hits_hold(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, 10))
    with cache.match(keys(cache, 4)) as hit:
        assert client.evict().pages == 6
        assert intact(hit)
        assert cache.lookup(keys(cache, 10)) == 4

    assert client.evict().pages == 4
    assert figures(client).free == figures(client).slots


def test_evict_everything_lets_open_hits_end_in_peace(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, 10))
    with cache.match(keys(cache, 4)) as hit:
        evicted = client.evict(everything=True)
        assert (evicted.pages, evicted.retiring) == (6, 4)
        assert cache.lookup(keys(cache, 10)) == 0
        assert put(cache, keys(cache, 10)) == 10  # the same keys, in other slots
        assert intact(hit)
        with cache.match(keys(cache, 4)) as again:
            assert not set(hit.handles) & set(again.handles)

    assert figures(client).retiring == 0
    assert verified(cache, keys(cache, 10)) == 10


def test_evict_spares_what_is_being_written_and_what_it_hangs_from(
    client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    put(cache, keys(cache, 4))
    with cache.reserve(keys(cache, 6)) as pages:
        for page in pages:
            page.buffer[...] = 1
        assert client.evict(everything=True).pages == 0
        client.evict()

    assert cache.lookup(keys(cache, 6)) == 6


def test_evict_of_one_descriptor_spares_the_others(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    other = client.open(small("other", kib=8), model="m")
    put(cache, keys(cache, 5))
    put(other, keys(other, 5))
    client.evict("other")

    assert (cache.lookup(keys(cache, 5)), other.lookup(keys(other, 5))) == (5, 0)
    with pytest.raises(nexuskv.UnknownDescriptor, match="there are: other, small"):
        client.evict("nobody")


def test_every_byte_is_right_after_heavy_reuse(daemon: Daemon, cache: nexuskv.Cache) -> None:
    chance = random.Random(11)
    with daemon.client() as other:
        theirs = other.open(PAGES, model="m")
        for _ in range(300):
            wanted = keys(cache, chance.randrange(1, 30), branch=chance.randrange(20))
            with theirs.match(wanted) as held:
                put(cache, wanted)
                verified(cache, keys(cache, 30, branch=chance.randrange(20)))
                assert intact(held)
        assert figures(other).evicted > 1000
