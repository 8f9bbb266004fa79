"""Hits without the daemon: no system call, and none needed while it is stopped or dead."""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

import nexuskv
from nexuskv.client.keeper import RETRY_SECONDS
from nexuskv.protocol import messages as m
from tests.index.conftest import PAGES
from tests.support import processes
from tests.support.daemon import Daemon
from tests.support.pages import content, intact, keys, put, verified
from tests.support.relay import relaying
from tests.support.waiting import until

CHAIN = 8
TURNS = 2000
PR_SET_SECCOMP, SECCOMP_MODE_STRICT = 22, 1


@pytest.fixture
def wanted(cache: nexuskv.Cache) -> list[bytes]:
    """Keys of a resident chain that `cache` has mapped."""
    wanted = keys(cache, CHAIN)
    put(cache, wanted)
    verified(cache, wanted)
    return wanted


def hitting(_: Connection, address: str, wanted: list[bytes], outcome: int) -> None:
    """Matches, reads, looks up, in a process that the kernel kills at any call but read, write and exit."""

    def hit(turn: int) -> int:
        with cache.match(wanted) as pages:
            found = sum(int(page.buffer[turn]) + int(page["key"].nbytes) for page in pages)
        return found + cache.lookup(wanted) + len(cache.status(wanted))

    cache = nexuskv.connect(address).open(PAGES, model="m")
    expected = [hit(turn) for turn in range(TURNS)]  # and now it has all the memory that it will need
    assert ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0
    right = sum(hit(turn) == expected[turn] for turn in range(TURNS))
    os.write(outcome, b"%d right" % right)
    os.getppid()  # one that is not allowed, to see that somebody watches


def test_a_hit_takes_no_system_call(daemon: Daemon, wanted: list[bytes]) -> None:
    ours, theirs = os.pipe()
    try:
        with processes.running(hitting, daemon.address, wanted, theirs, context=processes.FORK) as child:
            assert child.join() == -signal.SIGKILL
        assert os.read(ours, 100) == b"%d right" % TURNS
    finally:
        os.close(ours)
        os.close(theirs)


def stopped(daemon: Daemon) -> None:
    daemon.process.send_signal(signal.SIGSTOP)


def killed(daemon: Daemon) -> None:
    daemon.stop(signal.SIGKILL)


@pytest.mark.parametrize("away", [stopped, killed])
def test_hits_go_on_while_the_daemon_is_away(
    daemon: Daemon, cache: nexuskv.Cache, wanted: list[bytes], away: Callable[[Daemon], None]
) -> None:
    with cache.match(wanted) as older:
        away(daemon)
        for _ in range(50):
            assert verified(cache, wanted) == CHAIN
            assert cache.lookup(wanted) == CHAIN
        assert {status.state for status in cache.status(wanted)} == {"present"}
        assert verified(cache, keys(cache, CHAIN, branch=9)) == 0
        assert intact(older)
        page = older[3]["key"]
        assert page.tobytes() == content(wanted[3], PAGES.page_bytes).tobytes()[: page.nbytes]
    daemon.process.send_signal(signal.SIGCONT)


def test_hits_go_on_after_the_client_noticed_that_the_daemon_is_dead(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, wanted: list[bytes]
) -> None:
    daemon.stop(signal.SIGKILL)
    with pytest.raises(nexuskv.Disconnected):
        client.stats()
    with pytest.raises(nexuskv.Disconnected):
        cache.status(keys(cache, 1, branch=9))  # why a page is absent only the daemon knows

    for _ in range(200):
        assert verified(cache, wanted) == CHAIN


def test_hits_go_on_while_the_next_daemon_is_stopped(daemon: Daemon) -> None:
    with daemon.client(timeout=0.3) as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, CHAIN))
        assert verified(cache, keys(cache, CHAIN)) == CHAIN
        daemon.stop(signal.SIGKILL)
        with pytest.raises(nexuskv.Disconnected):
            client.stats()
        daemon.restart()
        stopped(daemon)
        for _ in range(50):
            assert verified(cache, keys(cache, CHAIN)) == CHAIN
        daemon.process.send_signal(signal.SIGCONT)
        daemon.wait_ready()
        until(lambda: client.stats().sessions == 1, "the client has a session again")
        assert verified(cache, keys(cache, CHAIN)) == CHAIN


def test_a_page_in_a_segment_not_mapped_yet_is_a_miss_while_the_daemon_is_dead(
    daemon: Daemon, cache: nexuskv.Cache, wanted: list[bytes]
) -> None:
    with daemon.client() as other:
        theirs = other.open(PAGES, model="m")
        far = keys(theirs, 24, branch=1)  # more than a segment
        put(theirs, far)
    daemon.stop(signal.SIGKILL)
    assert verified(cache, far) < 24
    assert verified(cache, wanted) == CHAIN

    daemon.restart()
    assert verified(cache, far) == 24


def test_a_page_in_a_segment_not_mapped_yet_is_a_miss_while_the_daemon_is_stopped(daemon: Daemon) -> None:
    with daemon.client(timeout=0.2) as hasty, daemon.client() as other:
        cache, theirs = hasty.open(PAGES, model="m"), other.open(PAGES, model="m")
        wanted = keys(theirs, 3)
        put(theirs, wanted)
        stopped(daemon)
        assert verified(cache, wanted) == 0

        daemon.process.send_signal(signal.SIGCONT)
        hasty.stats()
        assert verified(cache, wanted) == 3


def test_a_segment_that_each_daemon_dies_of_is_a_miss(daemon: Daemon, cache: nexuskv.Cache) -> None:
    with relaying(daemon) as relay, nexuskv.connect(relay.address) as client:
        mine = client.open(PAGES, model="m")
        wanted = keys(cache, CHAIN)
        put(cache, wanted)
        relay.fatal = (m.Map,)
        for turn in range(1, 4):
            assert verified(mine, wanted) == 0
            assert mine.lookup(wanted) == 0
            assert relay.deaths >= turn
            time.sleep(RETRY_SECONDS)
        relay.fatal = ()
        until(lambda: verified(mine, wanted) == CHAIN, "the client has a daemon that lives")
