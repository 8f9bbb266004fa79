"""A forked child is another engine: it connects anew, and what its parent holds stays the parent's."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import nexuskv
from tests.end_to_end.conftest import PAGES
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import intact, keys, put, verified
from tests.support.waiting import until


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "256KiB", memory="1MiB") as daemon:
        yield daemon


def complaint(use: Callable[[], object]) -> str:
    """What a use raises."""
    try:
        use()
    except nexuskv.Closed as error:
        return str(error)
    return "nothing"


def test_a_child_has_a_session_of_its_own(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    def child(pipe: Connection) -> None:
        written = put(cache, keys(cache, 2, branch=1))
        pipe.send((verified(cache, keys(cache, 2)), written, client.stats().sessions, client.boot_epoch))

    put(cache, keys(cache, 2))
    with processes.running(child, context=processes.FORK) as forked:
        assert forked.receive() == (2, 2, 2, client.boot_epoch)
        assert forked.join() == 0

    until(lambda: client.stats().sessions == 1, "the child's session has ended")
    assert verified(cache, keys(cache, 2, branch=1)) == 2


def test_a_child_cannot_use_what_its_parent_holds(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, 2))
    with cache.match(keys(cache, 2)) as hit, cache.reserve(keys(cache, 2, branch=1)) as pages:
        page = hit[0]

        def child(pipe: Connection) -> None:
            uses: tuple[Callable[[], object], ...] = (
                lambda: page["key"],
                lambda: hit[0],
                lambda: hit.handles,
                lambda: pages[0]["key"],
                lambda: pages[0].buffer,
                pages[0].commit,
                pages.commit,
            )
            pipe.send([complaint(use) for use in uses])
            hit.close()
            pages.abort()
            client.close()

        with processes.running(child, context=processes.FORK) as forked:
            assert all("opened before fork()" in said for said in forked.receive())
            assert forked.join() == 0

        assert intact(hit)
        stats = client.stats()
        assert (stats.tenants[0].pinned, stats.arenas[0].writing) == (2, 2)
        pages[1].buffer[...] = 1
    assert cache.lookup(keys(cache, 2, branch=1)) == 2


@pytest.mark.parametrize("how", ["exits", "is killed"])
def test_the_end_of_a_child_ends_no_pin_of_its_parent(
    client: nexuskv.Client, cache: nexuskv.Cache, how: str
) -> None:
    put(cache, keys(cache, 3))
    with cache.match(keys(cache, 3)) as hit:
        if (pid := os.fork()) == 0:
            if how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        os.waitpid(pid, 0)

        assert client.stats().sessions == 1
        client.evict()
        assert client.stats().tenants[0].pinned == 3
        assert intact(hit)


def test_a_parent_that_ends_takes_its_session_although_a_child_lives(
    daemon: Daemon, client: nexuskv.Client
) -> None:
    def parent(pipe: Connection) -> None:
        engine = daemon.client()
        theirs = engine.open(PAGES, model="m")
        hit = theirs.match(keys(theirs, 3))
        ours, childs = os.pipe()
        if os.fork() == 0:
            os.read(ours, 1)  # waits until it is killed
        pipe.send(len(hit))
        os.read(ours, 1)
        os.close(childs)

    cache = client.open(PAGES, model="m")
    put(cache, keys(cache, 3))
    with processes.running(parent, context=processes.FORK) as forked:
        assert forked.receive() == 3
        grandchild = processes.children(forked.pid)[0]
        forked.kill()
        until(lambda: client.stats().tenants[0].pinned == 0, "the pins of the dead parent are gone")
        os.kill(grandchild, signal.SIGKILL)
        forked.join()
        os.waitpid(grandchild, 0)  # it is ours now


def test_a_child_of_a_child(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    def child(pipe: Connection) -> None:
        mine = verified(cache, keys(cache, 2))
        with processes.running(grandchild, context=processes.FORK) as forked:
            pipe.send((mine, forked.receive()))

    def grandchild(pipe: Connection) -> None:
        pipe.send((verified(cache, keys(cache, 2)), client.stats().sessions))

    put(cache, keys(cache, 2))
    with processes.running(child, context=processes.FORK) as forked:
        assert forked.receive() == (2, (2, 3))
    assert verified(cache, keys(cache, 2)) == 2


def test_a_child_gets_rid_of_its_parents_mappings(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    def child(pipe: Connection) -> None:
        maps = Path("/proc/self/maps").read_text().splitlines()
        pipe.send([line for line in maps if "nexuskv-test" in line])

    put(cache, keys(cache, 2))
    verified(cache, keys(cache, 2))
    gc.collect()
    with processes.running(child, context=processes.FORK) as forked:
        assert forked.receive() == []
