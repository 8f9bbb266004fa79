"""One client, used by many threads and by children of a fork."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import pytest

import nexuskv
from tests.index.conftest import PAGES, SLOTS
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import intact, keys, put, small, verified
from tests.support.waiting import until

THREADS = 8
CHAIN = 8
T = TypeVar("T")


def in_threads(work: Callable[[int], T]) -> list[T]:
    """Runs `work` in as many threads at once, and returns or raises what came of it."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


def test_threads_pin_and_close_while_others_evict(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    def work(thread: int) -> int:
        seen = 0
        for turn in range(60):
            branch = (thread + turn) % 6
            if thread < 2:
                put(cache, keys(cache, CHAIN, branch))
            with (
                cache.match(keys(cache, CHAIN, branch)) as outer,
                cache.match(keys(cache, 3, branch)) as inner,
            ):
                assert intact(outer)
                assert intact(inner)
                seen += len(outer)
            if thread == 7 and turn % 10 == 0:
                client.evict(everything=True)
        return seen

    assert all(in_threads(work)[:2])
    assert client.stats().tenants[0].pinned == 0
    client.evict(everything=True)
    arena = client.stats().arenas[0]
    assert arena.free == arena.slots


def test_threads_over_a_restart(daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    """Some hold hits, some write, some look up; every page that is found is right, and every call works again."""
    put(cache, keys(cache, CHAIN))

    def work(thread: int) -> int:
        if thread == 0:
            for _ in range(2):
                daemon.stop(signal.SIGKILL)
                daemon.restart()
            return 0
        for turn in range(400):
            assert verified(cache, keys(cache, CHAIN)) == CHAIN
            if thread < 3:
                try:
                    put(cache, keys(cache, 2, 10 * thread + turn % 3))
                except nexuskv.Disconnected:
                    continue
        return 1

    assert sum(in_threads(work)) == THREADS - 1
    assert client.stats().sessions == 1
    assert verified(cache, keys(cache, CHAIN)) == CHAIN
    assert client.stats().tenants[0].pinned == 0


def test_threads_open_caches_after_a_restart(daemon: Daemon, client: nexuskv.Client) -> None:
    client.stats()
    daemon.stop(signal.SIGKILL)
    daemon.restart()

    def work(thread: int) -> int:
        cache = client.open(small(f"d{thread % 3}", kib=4 * (1 + thread % 3)), model="m")
        return cache.lookup(keys(cache, 3, thread))

    assert in_threads(work) == [0] * THREADS


def pin_objects(daemon: Daemon) -> list[str]:
    return [name for name in daemon.objects() if "-pins-" in name]


@pytest.mark.parametrize("end", ["exits", "is killed"])
def test_a_child_pins_for_itself(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, end: str
) -> None:
    put(cache, keys(cache, CHAIN))
    with cache.match(keys(cache, CHAIN)) as hit:

        def child(pipe: Connection) -> None:
            hit.close()  # the parent's, so this does nothing
            theirs = cache.match(keys(cache, 4))
            pipe.send((len(theirs), intact(theirs)))
            pipe.recv()
            if end == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)

        with processes.running(child, context=processes.FORK) as forked:
            assert forked.receive() == (4, True)
            assert len(pin_objects(daemon)) == 2
            assert client.stats().tenants[0].pinned == CHAIN + 4
            forked.send("end")
            forked.join()
        until(lambda: client.stats().tenants[0].pinned == CHAIN, "the child's pins are gone")
        assert len(pin_objects(daemon)) == 1
        client.evict(everything=True)
        put(cache, keys(cache, SLOTS - CHAIN, 1))
        assert intact(hit)
    put(cache, keys(cache, SLOTS, 2))


def test_a_child_does_not_keep_its_parents_pins(daemon: Daemon, client: nexuskv.Client) -> None:
    """The lock that says that the parent lives is the parent's, though its child has a copy of everything."""

    def parent(pipe: Connection) -> None:
        engine = daemon.client()
        theirs = engine.open(PAGES, model="m")
        hit = theirs.match(keys(theirs, CHAIN))
        if (pid := os.fork()) == 0:
            signal.pause()
        pipe.send((len(hit), pid))
        signal.pause()

    cache = client.open(PAGES, model="m")
    put(cache, keys(cache, CHAIN))
    with processes.running(parent, context=processes.FORK) as forked:
        pinned, grandchild = forked.receive()
        assert pinned == CHAIN
        forked.kill()
        until(lambda: client.stats().tenants[0].pinned == 0, "the pins of the dead parent are gone")
        assert Path(f"/proc/{grandchild}").exists()
        os.kill(grandchild, signal.SIGKILL)
        forked.join()
        os.waitpid(grandchild, 0)  # it is ours now
    assert put(cache, keys(cache, SLOTS, 1)) == SLOTS


def test_a_child_of_a_process_whose_daemon_was_restarted(daemon: Daemon, cache: nexuskv.Cache) -> None:
    """The hit is older than the session that the client has now: it is the parent's all the same."""
    put(cache, keys(cache, CHAIN))
    hit = cache.match(keys(cache, CHAIN))
    daemon.stop(signal.SIGKILL)
    daemon.restart()
    put(cache, keys(cache, 1, 1))

    def child(pipe: Connection) -> None:
        try:
            hit.handles  # noqa: B018  # the question is whether it answers
        except nexuskv.Closed as error:
            pipe.send(str(error))

    with processes.running(child, context=processes.FORK) as forked:
        assert "opened before fork()" in forked.receive()
    assert intact(hit)
    hit.close()


def test_long_chains_pin_with_many_words() -> None:
    with running("--index-entries", "20000", memory="32MiB") as roomy, roomy.client() as client:
        cache = client.open(small("tiny", kib=1), model="m")
        wanted = keys(cache, 5000)
        put(cache, wanted)
        with cache.match(wanted) as hit:
            assert len(hit) == 5000
            assert client.stats().tenants[0].pinned == 5000
            assert intact(hit)
        assert client.stats().tenants[0].pinned == 0
