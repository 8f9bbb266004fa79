"""What readers use through shared memory alone is as good as asked for: eviction takes the rest first."""

from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

import nexuskv
from tests.index.conftest import PAGES, SLOTS
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, put, small, verified

QUARTER = SLOTS // 4


@pytest.fixture(params=[True, False], ids=["shared", "asked"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[nexuskv.Client]:
    with daemon.client(shared=request.param) as client:
        yield client


def reader(pipe: Connection, address: str, branch: int) -> None:
    """Another engine that uses a chain."""
    with nexuskv.connect(address) as client:
        cache = client.open(PAGES, model="m")
        pipe.send(verified(cache, keys(cache, QUARTER, branch)))
        pipe.recv()
        pipe.send(verified(cache, keys(cache, QUARTER, branch)))


def resident(cache: nexuskv.Cache, *branches: int) -> list[int]:
    return [cache.lookup(keys(cache, QUARTER, branch)) for branch in branches]


@pytest.mark.parametrize("used", range(4))
def test_used_pages_survive_the_eviction_of_unused_ones(client: nexuskv.Client, used: int) -> None:
    cache = client.open(PAGES, model="m")
    for branch in range(4):
        put(cache, keys(cache, QUARTER, branch))
    for new in range(10, 30):
        assert verified(cache, keys(cache, QUARTER, used)) == QUARTER
        put(cache, keys(cache, QUARTER, new))

    assert resident(cache, used, *(branch for branch in range(4) if branch != used)) == [QUARTER, 0, 0, 0]


def test_an_eviction_that_is_asked_for_heeds_them(client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    for branch in range(4):
        put(cache, keys(cache, QUARTER, branch))
    assert verified(cache, keys(cache, QUARTER, 0)) == QUARTER
    client.evict(nbytes=3 * QUARTER * PAGES.page_bytes)

    assert resident(cache, 0, 1, 2, 3) == [QUARTER, 0, 0, 0]


def test_use_by_another_engine(daemon: Daemon, cache: nexuskv.Cache) -> None:
    for branch in range(4):
        put(cache, keys(cache, QUARTER, branch))
    with processes.running(reader, daemon.address, 1) as engine:
        assert engine.receive() == QUARTER
        put(cache, keys(cache, QUARTER, 4))
        put(cache, keys(cache, QUARTER, 5))
        engine.send("again")
        assert engine.receive() == QUARTER
        for branch in range(6, 9):
            put(cache, keys(cache, QUARTER, branch))

    assert resident(cache, 0, 1, 2, 3) == [0, QUARTER, 0, 0]


def test_a_lookup_is_no_use(client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    for branch in range(4):
        put(cache, keys(cache, QUARTER, branch))
    for _ in range(5):
        assert resident(cache, 0) == [QUARTER]
        cache.status(keys(cache, QUARTER))
    put(cache, keys(cache, QUARTER, 4))

    assert resident(cache, 0, 1) == [0, QUARTER]


def test_a_full_index_makes_room_among_all_arenas_of_the_tenant() -> None:
    options = ("--index-entries", "64", "--segment-bytes", "1MiB")
    with running(*options, memory="4MiB") as daemon, daemon.client() as client:
        first, second = (client.open(small(name, kib=kib), model="m") for name, kib in (("a", 4), ("b", 8)))
        for branch in range(4):
            put(first, keys(first, QUARTER, branch))
        assert verified(first, keys(first, QUARTER)) == QUARTER
        assert put(second, keys(second, QUARTER)) == QUARTER
        assert verified(second, keys(second, QUARTER)) == QUARTER
        assert resident(first, 0, 1) == [QUARTER, 0]
        with first.match(keys(first, QUARTER)) as hit:
            client.evict(everything=True)
            with pytest.raises(nexuskv.ArenaFull, match="more --index-entries"):
                put(second, keys(second, 64, 1))
            assert len(hit) == QUARTER
        assert put(second, keys(second, 64, 1)) == 64
