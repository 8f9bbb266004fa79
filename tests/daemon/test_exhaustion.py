"""The daemon has no file descriptor left: newcomers are told, everybody else goes on, and it recovers."""

import resource
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import nexuskv
from nexuskv.protocol import messages as m
from tests.support.daemon import Daemon, running
from tests.support.hosts import MODEL, pair
from tests.support.pages import keys, put, small, verified
from tests.support.raw import RawSession
from tests.support.waiting import until

PAGES = small(kib=4)
SENTENCE = "no file descriptor left: close idle clients, or raise its LimitNOFILE"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon with segments of 16 pages, and no session."""
    with running("--segment-bytes", "64KiB", memory="1MiB") as daemon:
        with daemon.client() as client:
            until(lambda: client.stats().sessions == 1, "nobody else is there")
            with_one = daemon.descriptors()
        until(lambda: daemon.descriptors() == with_one - 1, "nobody is there")
        yield daemon


def leave(daemon: Daemon, free: int) -> None:
    """Sets the limit of the daemon so that it may open only `free` more descriptors."""
    pid = daemon.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (daemon.descriptors() + free, hard))


def test_newcomers_are_told_and_sessions_go_on(daemon: Daemon) -> None:
    with daemon.client() as early, ExitStack() as stack:
        cache = early.open(PAGES, model="m")
        put(cache, keys(cache, 4))
        until(lambda: early.stats().arenas[0].slots >= 16, "the first segment is there")
        leave(daemon, free=5)
        for _ in range(5):
            stack.enter_context(daemon.client())

        for _ in range(20):
            with pytest.raises(nexuskv.ArenaFull, match=SENTENCE):
                daemon.client()
        assert verified(cache, keys(cache, 4)) == 4
        stack.close()
        until(lambda: early.stats().sessions == 1, "the others have left")
        with daemon.client() as late:
            assert verified(late.open(PAGES, model="m"), keys(cache, 4)) == 4


def test_the_sentence_reaches_a_client_that_has_not_spoken_yet(daemon: Daemon) -> None:
    leave(daemon, free=0)
    with RawSession(daemon.socket, greet=False) as refused:
        reply = refused.receive()

        assert isinstance(reply, m.Refused)
        assert SENTENCE in reply.message
        assert refused.ended()


def test_a_segment_that_cannot_be_made_is_a_full_arena_with_the_reason(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        leave(daemon, free=0)
        with pytest.raises(nexuskv.ArenaFull, match=r"Growth failed: cannot .*Too many open files"):
            put(cache, keys(cache, 4))

        assert client.stats().memory_used == 0
        assert cache.lookup(keys(cache, 4)) == 0


def test_growth_that_fails_makes_do_with_eviction(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, 16, branch=1))
        leave(daemon, free=0)
        for branch in range(2, 12):
            assert put(cache, keys(cache, 16, branch)) == 16
            assert verified(cache, keys(cache, 16, branch)) == 16


def test_growth_that_fails_costs_no_other_descriptor_its_pages(daemon: Daemon) -> None:
    with daemon.client() as client:
        first, second = (client.open(small(name, kib=kib), model="m") for name, kib in (("a", 4), ("b", 8)))
        for branch in range(8):
            put(first, keys(first, 16, branch))
        put(second, keys(second, 8))
        leave(daemon, free=0)
        for branch in range(1, 4):
            put(second, keys(second, 8, branch))

        resident = sum(verified(first, keys(first, 16, branch)) for branch in range(8))
        assert resident == 8 * 16


def test_growth_goes_on_once_there_are_descriptors_again(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        leave(daemon, free=0)
        with pytest.raises(nexuskv.ArenaFull):
            put(cache, keys(cache, 4))
        leave(daemon, free=100)

        def stored() -> bool:
            try:
                return put(cache, keys(cache, 4)) == 4
            except nexuskv.ArenaFull:
                return False

        until(stored, "growth is tried again")
        assert verified(cache, keys(cache, 4)) == 4


def test_a_peer_that_cannot_be_served_is_refused_and_all_others_go_on() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(PAGES, model=MODEL), here.open(PAGES, model=MODEL)
        wanted = keys(theirs, 4)
        put(theirs, wanted)
        leave(first.daemon, free=0)
        came = ours.fetch(wanted)
        assert (came.pages, "cannot be mapped for peers" in came.reason) == (0, True)
        assert verified(theirs, wanted) == 4
        assert there.stats().arenas[0].resident == 4
