"""Chains of more pages than a message has keys: the client splits every call, and nobody notices."""

from collections.abc import Iterator

import pytest

import nexuskv
from nexuskv.protocol import messages as m
from tests.support.daemon import Daemon, running
from tests.support.pages import content, fill, intact, keys

TINY = nexuskv.mha("tiny", kv_heads=1, head_dim=4, page_tokens=4, dtype="float16", engine_family="VLLM")
SNAPSHOT = nexuskv.mamba2(
    "snapshot", heads=1, head_dim=4, state_size=4, dtype="float32", page_tokens=2, engine_family="VLLM"
)
LONG = 2 * m.MAX_KEYS + 100


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "256KiB", memory="4MiB") as daemon:
        yield daemon


@pytest.fixture
def cache(daemon: Daemon) -> Iterator[nexuskv.Cache]:
    with daemon.client() as client:
        yield client.open(TINY, model="m")


def test_a_long_chain_is_written_found_and_read(daemon: Daemon, cache: nexuskv.Cache) -> None:
    wanted = keys(cache, LONG)
    with cache.reserve(wanted) as pages:
        assert [page.position for page in pages] == list(range(LONG))
        assert {status.state for status in cache.status(wanted)} == {"being_written"}
        fill(pages)
    with daemon.client() as other:
        theirs = other.open(TINY, model="m")
        assert theirs.lookup(wanted) == LONG
        assert {status.state for status in theirs.status(wanted)} == {"present"}
        with theirs.match(wanted) as hit:
            assert (len(hit), hit.tokens) == (LONG, LONG * 4)
            assert [page.key for page in hit] == wanted
            assert intact(hit)
        assert other.stats().tenants[0].pinned == 0


@pytest.mark.parametrize("resident", [m.MAX_KEYS - 1, m.MAX_KEYS, m.MAX_KEYS + 1])
def test_a_resident_part_ends_anywhere(cache: nexuskv.Cache, resident: int) -> None:
    wanted = keys(cache, LONG)
    with cache.reserve(wanted[:resident]) as pages:
        assert len(pages) == resident
    assert cache.lookup(wanted) == resident
    with cache.match(wanted) as hit:
        assert len(hit) == resident
    with cache.reserve(wanted) as pages:
        assert [page.position for page in pages] == list(range(resident, LONG))

    assert cache.lookup(wanted) == LONG


def test_aborting_a_long_chain_gives_back_every_page(daemon: Daemon, cache: nexuskv.Cache) -> None:
    wanted = keys(cache, LONG)
    reservation = cache.reserve(wanted)
    reservation[0].commit()
    reservation.abort()

    assert cache.lookup(wanted) == 1
    with daemon.client() as other:
        assert other.stats().arenas[0].writing == 0


def test_a_long_chain_that_does_not_fit_leaves_nothing_reserved(daemon: Daemon, cache: nexuskv.Cache) -> None:
    wanted = keys(cache, 20 * m.MAX_KEYS)  # each message's pages fit, all of them do not
    with pytest.raises(nexuskv.ArenaFull) as caught:
        cache.reserve(wanted)

    assert caught.value.numbers["budget_bytes"] == 4 << 20
    with daemon.client() as other:
        assert other.stats().arenas[0].writing == 0


def test_another_writer_in_the_middle_of_a_long_chain(daemon: Daemon, cache: nexuskv.Cache) -> None:
    wanted = keys(cache, LONG)
    with daemon.client() as other:
        theirs = other.open(TINY, model="m")
        with theirs.reserve(wanted[:5]) as first, cache.reserve(wanted) as pages:
            assert (len(first), len(pages)) == (5, 0)
            assert pages.busy > 0
        with cache.reserve(wanted) as pages:
            assert len(pages) == LONG - 5


def test_a_checkpoint_needs_no_page_before_it(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(SNAPSHOT, model="m")
        wanted = keys(cache, LONG)
        chosen = [wanted[3], wanted[m.MAX_KEYS + 7]]
        with cache.reserve(chosen) as pages:
            fill(pages)

        assert cache.lookup(wanted) == m.MAX_KEYS + 8
        with cache.match(wanted) as hit:
            assert (len(hit), hit.start, hit.stop) == (1, m.MAX_KEYS + 7, m.MAX_KEYS + 8)
            assert hit.tokens == 2 * (m.MAX_KEYS + 8)
            assert (hit[0].key, hit[0].position) == (chosen[1], m.MAX_KEYS + 7)
            assert (hit[0].buffer == content(chosen[1], SNAPSHOT.page_bytes)).all()
        with cache.match(wanted[: m.MAX_KEYS]) as hit:
            assert (hit.start, hit.stop, hit[0].key) == (3, 4, chosen[0])
        with cache.match(wanted[:3]) as hit:
            assert (len(hit), hit.tokens) == (0, 0)


def test_a_busy_checkpoint_does_not_keep_back_those_after_it(daemon: Daemon) -> None:
    with daemon.client() as client, daemon.client() as other:
        cache, theirs = (each.open(SNAPSHOT, model="m") for each in (client, other))
        wanted = keys(cache, LONG)
        with theirs.reserve([wanted[1]]), cache.reserve(wanted) as pages:
            assert len(pages) == LONG - 1
