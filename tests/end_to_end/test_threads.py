"""One client, many threads: every reply reaches its own caller."""

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

import nexuskv
from tests.support.daemon import Daemon, running
from tests.support.pages import fill, intact, keys, put, small, verified

PAGES = small(kib=4)
THREADS = 8
T = TypeVar("T")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "256KiB", memory="4MiB") as daemon:
        yield daemon


def in_threads(work: Callable[[int], T]) -> list[T]:
    """Runs `work` in as many threads at once, and returns or raises what came of it."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


def test_threads_write_and_read_through_one_client(client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")

    def work(thread: int) -> int:
        for turn in range(20):
            wanted = keys(cache, 1 + turn % 6, branch=100 * thread + turn)
            assert put(cache, wanted) == len(wanted)
            assert verified(cache, wanted) == len(wanted)
            assert {status.state for status in cache.status(wanted)} == {"present"}
        return thread

    assert in_threads(work) == list(range(THREADS))
    stats = client.stats()
    assert (stats.arenas[0].writing, stats.tenants[0].pinned) == (0, 0)


def test_threads_that_want_the_same_pages_write_each_once(client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    wanted = keys(cache, 200)

    def work(_: int) -> int:
        written = 0
        while cache.lookup(wanted) < len(wanted):
            with cache.reserve(wanted[: cache.lookup(wanted) + 10]) as pages:
                fill(pages)
                written += len(pages)
        return written

    assert sum(in_threads(work)) == len(wanted)
    assert verified(cache, wanted) == len(wanted)


def test_threads_open_caches_of_several_descriptors_at_once(client: nexuskv.Client) -> None:
    def work(thread: int) -> int:
        cache = client.open(small(f"d{thread % 3}", kib=4 * (1 + thread % 3)), model="m")
        return put(cache, keys(cache, 5, branch=thread))

    assert in_threads(work) == [5] * THREADS


def test_threads_of_a_client_survive_its_daemon(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    put(cache, keys(cache, 10))

    def work(thread: int) -> str:
        if thread == 0:
            daemon.stop(9)
        for _ in range(100):
            assert verified(cache, keys(cache, 10)) == 10
        return "read on"

    assert in_threads(work) == ["read on"] * THREADS
    daemon.restart()
    assert in_threads(lambda _: put(cache, keys(cache, 10))) == [0] * THREADS
    assert in_threads(lambda _: cache.lookup(keys(cache, 10))) == [10] * THREADS
    assert client.stats().sessions == 1


def test_closing_a_client_while_threads_use_it(client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    put(cache, keys(cache, 10))

    def work(thread: int) -> str:
        if thread == 0:
            client.close()
        try:
            while True:
                verified(cache, keys(cache, 10))
        except (nexuskv.Closed, nexuskv.Disconnected):
            return "closed"

    assert in_threads(work) == ["closed"] * THREADS


def test_a_client_that_was_closed_under_an_open_hit(client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    put(cache, keys(cache, 3))
    with cache.match(keys(cache, 3)) as hit, cache.reserve(keys(cache, 3, branch=1)) as pages:
        assert intact(hit)
        page = hit[0]
        client.close()

        for use in (lambda: page["key"], lambda: hit[0], lambda: hit.handles, lambda: pages[0]["key"]):
            with pytest.raises(nexuskv.Closed, match="its client is closed"):
                use()
        pages.abort()
    with pytest.raises(nexuskv.Closed, match="connect anew"):
        client.stats()


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "asked"])
def test_a_hit_dropped_without_close_warns_and_gives_its_pins_back(daemon: Daemon, *, shared: bool) -> None:
    with daemon.client(shared=shared) as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, 3))
        held = [cache.match(keys(cache, 3))]
        assert client.stats().tenants[0].pinned == 3
        with pytest.warns(ResourceWarning, match=r"a hit was dropped without close\(\)"):
            held.clear()

        assert client.stats().tenants[0].pinned == 0


def test_a_reservation_dropped_unfinished_warns_and_gives_its_slots_back(
    daemon: Daemon, client: nexuskv.Client
) -> None:
    cache = client.open(PAGES, model="m")
    with daemon.client() as other:
        held = [cache.reserve(keys(cache, 3))]
        pages = list(held[0])
        gc.disable()  # what is dropped ends at once, and nobody has to look for it
        try:
            del pages
            with pytest.warns(ResourceWarning, match="a reservation was dropped unfinished"):
                held.clear()
        finally:
            gc.enable()

        assert other.stats().arenas[0].writing == 0
        assert put(cache, keys(cache, 3)) == 3


def test_a_group_reservation_dropped_unfinished(daemon: Daemon, client: nexuskv.Client) -> None:
    group = client.open_group([small("a", kib=4), small("b", kib=8)], model="m")
    with daemon.client() as other:
        held = [group.reserve(group.keys(range(64)))]
        assert len(list(held[0])) > 0
        gc.disable()
        try:
            with pytest.warns(ResourceWarning, match="a reservation was dropped unfinished"):
                held.clear()
        finally:
            gc.enable()
        assert [arena.writing for arena in other.stats().arenas] == [0, 0]


def test_closing_a_client_wakes_a_thread_that_waits(daemon: Daemon, client: nexuskv.Client) -> None:
    asked = threading.Event()

    def wait() -> str:
        asked.set()
        try:
            client.stats()
        except (nexuskv.Closed, nexuskv.Disconnected):
            return "woken"
        return "answered"

    with ThreadPoolExecutor() as pool:
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            waiting = pool.submit(wait)
            asked.wait()
            time.sleep(0.1)  # it is in the kernel by then, most likely
            client.close()
            assert waiting.result(timeout=10) == "woken"
        finally:
            daemon.process.send_signal(signal.SIGCONT)
