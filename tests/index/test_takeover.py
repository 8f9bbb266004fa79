"""A daemon killed at any point: the next one of the same name has every committed page, and no client restarts."""

import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

import nexuskv
from nexuskv.protocol.stats import ArenaStats
from tests.index.conftest import PAGES, SLOTS
from tests.support import processes
from tests.support.daemon import Daemon
from tests.support.pages import intact, keys, put, small, verified
from tests.support.waiting import until

CHAIN = 8


def killed(daemon: Daemon) -> None:
    """Another process, and nothing lost."""
    daemon.stop(signal.SIGKILL)
    daemon.restart()


def figures(client: nexuskv.Client) -> ArenaStats:
    (arena,) = client.stats().arenas
    return arena


@pytest.fixture
def resident(cache: nexuskv.Cache) -> list[list[bytes]]:
    """Keys of three resident chains."""
    chains = [keys(cache, CHAIN, branch) for branch in range(3)]
    for chain in chains:
        put(cache, chain)
    return chains


FIRST_CALLS: dict[str, Callable[[nexuskv.Client, nexuskv.Cache], object]] = {
    "stats": lambda client, _: client.stats().arenas[0].resident == 3 * CHAIN,
    "match": lambda _, cache: verified(cache, keys(cache, CHAIN)) == CHAIN,
    "lookup": lambda _, cache: cache.lookup(keys(cache, CHAIN)) == CHAIN,
    "status": lambda _, cache: (
        {s.state for s in cache.status(keys(cache, 2 * CHAIN))} == {"present", "absent"}
    ),
    "reserve": lambda _, cache: put(cache, keys(cache, CHAIN, 7)) == CHAIN,
    "evict": lambda client, _: client.evict().pages == 3 * CHAIN,
    "open": lambda client, _: client.open(small("more", kib=8), model="m").lookup([]) == 0,
}


@pytest.mark.parametrize("call", FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_the_first_call_after_it_succeeds(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, resident: list[list[bytes]],
    call: Callable[[nexuskv.Client, nexuskv.Cache], object],
) -> None:  # fmt: skip
    killed(daemon)

    assert call(client, cache)


@pytest.mark.parametrize("shared", [True, False])
def test_pages_are_there_and_whole(daemon: Daemon, resident: list[list[bytes]], shared: bool) -> None:
    with daemon.client(shared=shared) as client:
        cache = client.open(PAGES, model="m")
        before = client.boot_epoch
        assert verified(cache, resident[0]) == CHAIN
        for _ in range(3):  # several restarts in a row
            killed(daemon)
            assert [verified(cache, chain) for chain in resident] == [CHAIN] * 3
            client.stats()
            assert client.boot_epoch != before
            before = client.boot_epoch
    with daemon.client(shared=shared) as newcomer:
        fresh = newcomer.open(PAGES, model="m")
        assert [verified(fresh, chain) for chain in resident] == [CHAIN] * 3


def test_open_hits_hold_until_they_are_closed(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, resident: list[list[bytes]]
) -> None:
    with cache.match(resident[0]) as hit:
        for turn in range(3):
            killed(daemon)
            assert intact(hit)
            client.evict(everything=True)
            for branch in range(20):
                put(cache, keys(cache, SLOTS // 4, 100 * turn + branch + 10))
            assert intact(hit)
        assert figures(client).retiring == CHAIN
    assert put(cache, keys(cache, SLOTS, 9)) == SLOTS


def holder(pipe: Connection, address: str) -> None:
    """An engine with an open hit, idle for long."""
    client = nexuskv.connect(address)
    cache = client.open(PAGES, model="m")
    hit = cache.match(keys(cache, CHAIN))
    pipe.send(len(hit))
    pipe.recv()
    pipe.send(intact(hit))
    time.sleep(3600)


def test_pins_of_others_hold_until_they_are_gone(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, resident: list[list[bytes]]
) -> None:
    with (
        processes.running(holder, daemon.address) as other,
        processes.running(holder, daemon.address) as dead,
    ):
        assert other.receive() == dead.receive() == CHAIN
        daemon.stop(signal.SIGKILL)
        dead.kill()
        dead.join()
        daemon.restart()
        client.evict(everything=True)
        assert figures(client).retiring == CHAIN
        for branch in range(20):
            put(cache, keys(cache, SLOTS // 4, branch + 10))
        other.send("look")
        assert other.receive()
        other.kill()
        other.join()
    until(lambda: client.stats().tenants[0].pinned == 0, "the pins are gone")
    assert put(cache, keys(cache, SLOTS, 9)) == SLOTS


def test_what_conflicted_conflicts_still(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, resident: list[list[bytes]]
) -> None:
    alias = nexuskv.mha(
        "alias", layers=1, kv_heads=64, head_dim=4, page_tokens=4, dtype="float16", engine_family="SGLANG"
    )
    assert alias.digest == PAGES.digest
    client.open(alias, model="m")
    killed(daemon)

    with daemon.client() as newcomer:
        for name in (PAGES.descriptor_id, "alias"):
            with pytest.raises(nexuskv.DescriptorConflict):
                newcomer.open(small(name, kib=8), model="m")
        assert verified(newcomer.open(alias, model="m"), resident[0]) == CHAIN
        assert len(newcomer.stats().arenas) == 1


def test_the_oldest_pages_still_go_first(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    for branch in range(4):
        put(cache, keys(cache, SLOTS // 4, branch))
    assert verified(cache, keys(cache, SLOTS // 4, 0)) == SLOTS // 4
    killed(daemon)
    put(cache, keys(cache, SLOTS // 4, 9))

    assert [cache.lookup(keys(cache, SLOTS // 4, branch)) for branch in (0, 1, 2, 3, 9)] == [
        16,
        0,
        16,
        16,
        16,
    ]


def test_a_smaller_budget(daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    for branch in range(4):
        put(cache, keys(cache, SLOTS // 4, branch))
    with cache.match(keys(cache, 4, 3)) as hit:
        daemon.stop(signal.SIGKILL)
        daemon.restart("--memory", "128KiB")
        stats = client.stats()
        assert stats.memory_used <= stats.memory_budget == 128 << 10
        assert intact(hit)
        put(cache, keys(cache, 8, 9))
        assert verified(cache, keys(cache, 8, 9)) == 8
        assert intact(hit)
    assert sum(verified(cache, keys(cache, SLOTS // 4, branch)) for branch in range(4)) <= 32


def test_several_arenas(daemon: Daemon, client: nexuskv.Client) -> None:
    caches = [client.open(small(f"d{kib}", kib=kib), model="m") for kib in (4, 8, 16)]
    for cache in caches:
        put(cache, keys(cache, 3))
    killed(daemon)

    assert [verified(cache, keys(cache, 3)) for cache in caches] == [3, 3, 3]
    assert [put(cache, keys(cache, 2, 1)) for cache in caches] == [2, 2, 2]
    killed(daemon)
    assert [verified(cache, keys(cache, 2, 1)) for cache in caches] == [2, 2, 2]
