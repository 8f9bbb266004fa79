"""kill -9 at each step: what was not committed never existed, what was stays, and no slot or pin is lost."""

import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

import nexuskv
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.figures import figures
from tests.support.pages import fill, intact, keys, put, small, verified
from tests.support.waiting import until

PAGES = small(kib=64)
CHAIN = 8
SLOTS = 16
STEPS = {
    "reserved": 0,
    "half written": 0,
    "some committed": 3,
    "all committed one by one": CHAIN,
    "committed": CHAIN,
}
"""Steps of the write path, and how many pages are committed there."""


def writer(pipe: Connection, address: str, last: str) -> None:
    """An engine that writes a chain and stops at the step `last`."""

    def reached(step: str) -> None:
        if step == last:
            cache.lookup(keys(cache, 1))  # whatever was sent before has been dealt with
            pipe.send(step)
            time.sleep(3600)

    with nexuskv.connect(address) as client:
        cache = client.open(PAGES, model="m")
        with cache.reserve(keys(cache, CHAIN)) as pages:
            reached("reserved")
            fill(list(pages)[: CHAIN // 2])
            pages[CHAIN // 2].buffer[:100] = 7
            reached("half written")
            fill(pages)
            for page in list(pages)[:3]:
                page.commit()
            reached("some committed")
            for page in list(pages)[3:]:
                page.commit()
            reached("all committed one by one")
        reached("committed")


def reader(pipe: Connection, address: str) -> None:
    """An engine that holds a hit."""
    with nexuskv.connect(address) as client:
        cache = client.open(PAGES, model="m")
        with cache.match(keys(cache, CHAIN)) as hit:
            pipe.send(len(hit))
            time.sleep(3600)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "512KiB", memory="1MiB") as daemon:
        yield daemon


@pytest.mark.parametrize("step", STEPS)
def test_a_writer_killed(daemon: Daemon, client: nexuskv.Client, step: str) -> None:
    cache = client.open(PAGES, model="m")
    wanted = keys(cache, CHAIN)
    with processes.running(writer, daemon.address, step) as killed:
        assert killed.receive() == step
        until(lambda: verified(cache, wanted) == STEPS[step], "what it committed has arrived")
        killed.kill()
    until(lambda: client.stats().sessions == 1, "the daemon knows that the writer is dead")
    until(lambda: figures(client).writing == 0, "its slots have come back")

    assert verified(cache, wanted) == STEPS[step]
    states = [status.state for status in cache.status(wanted)]
    assert states == ["present"] * STEPS[step] + ["absent"] * (CHAIN - STEPS[step])
    assert put(cache, wanted) == CHAIN - STEPS[step]  # the same pages can be written anew
    assert verified(cache, wanted) == CHAIN


def test_slots_of_killed_writers_are_not_lost(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    with processes.running(writer, daemon.address, "half written") as killed:
        killed.receive()
        killed.kill()
    until(lambda: figures(client).writing == 0, "the daemon knows that the writer is dead")

    with cache.reserve(keys(cache, SLOTS, branch=1)) as pages:  # all there are
        fill(pages)
    assert verified(cache, keys(cache, SLOTS, branch=1)) == SLOTS


def test_a_reader_killed_lets_go_of_its_pins(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    put(cache, keys(cache, CHAIN))
    with processes.running(reader, daemon.address) as killed:
        assert killed.receive() == CHAIN
        assert client.stats().tenants[0].pinned == CHAIN
        with pytest.raises(nexuskv.ArenaFull) as full:
            put(cache, keys(cache, SLOTS, branch=1))
        assert full.value.numbers["pinned_bytes"] == CHAIN * PAGES.page_bytes
        killed.kill()
        until(lambda: client.stats().tenants[0].pinned == 0, "the pins of the dead are gone")

    assert put(cache, keys(cache, SLOTS, branch=1)) == SLOTS
    assert verified(cache, keys(cache, SLOTS, branch=1)) == SLOTS


def test_a_stopped_reader_keeps_its_pins_and_stops_nobody(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    put(cache, keys(cache, CHAIN))
    with processes.running(reader, daemon.address) as stopped:
        stopped.receive()
        stopped.kill(signal.SIGSTOP)
        for branch in range(1, 20):
            put(cache, keys(cache, SLOTS - CHAIN, branch))

        assert verified(cache, keys(cache, CHAIN)) == CHAIN
        assert client.stats().tenants[0].pinned == CHAIN
        client.evict(everything=True)
        assert (figures(client).retiring, figures(client).resident) == (CHAIN, 0)
        stopped.kill(signal.SIGCONT)
        stopped.kill()
        until(lambda: figures(client).free == SLOTS, "its slots are free")


def test_a_stopped_writer_stops_nobody(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    with processes.running(writer, daemon.address, "some committed") as stopped:
        stopped.receive()
        stopped.kill(signal.SIGSTOP)
        for branch in range(1, 20):
            put(cache, keys(cache, SLOTS - CHAIN, branch))

        with cache.reserve(keys(cache, CHAIN)) as pages:
            assert (len(pages), pages.busy) == (0, CHAIN - 3)
        assert verified(cache, keys(cache, CHAIN)) == 3


def test_the_daemon_killed_while_a_client_writes(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    wanted = keys(cache, CHAIN)
    reservation = cache.reserve(wanted)
    fill(reservation)
    daemon.stop(signal.SIGKILL)
    fill(reservation)  # the memory is still there: no fault, and no use
    with pytest.raises(nexuskv.Disconnected):
        reservation.commit()
    daemon.restart()

    assert cache.lookup(wanted) == 0
    assert put(cache, wanted) == 0  # the next daemon does not know whether this client is still writing
    del reservation
    until(lambda: figures(client).writing == 0, "the slots have come back")
    assert put(cache, wanted) == CHAIN


def test_the_daemon_killed_while_a_client_reads(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    wanted = keys(cache, CHAIN)
    put(cache, wanted)
    with cache.match(wanted) as hit:
        daemon.stop(signal.SIGKILL)
        daemon.restart()
        assert put(cache, keys(cache, SLOTS - CHAIN, branch=1)) == SLOTS - CHAIN
        with pytest.raises(nexuskv.ArenaFull):
            put(cache, keys(cache, SLOTS, branch=2))  # the new daemon respects the pins of before

        assert intact(hit)
    assert put(cache, keys(cache, SLOTS, branch=2)) == SLOTS
    assert cache.lookup(wanted) == 0


def test_writers_killed_one_after_the_other(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    for step in list(STEPS)[:3]:
        with processes.running(writer, daemon.address, step) as killed:
            killed.receive()
        until(lambda: client.stats().sessions == 1, "the daemon knows that the writer is dead")
        until(lambda: figures(client).writing == 0, "its slots have come back")
        client.evict(everything=True)

    assert figures(client).free == SLOTS
    assert verified(cache, keys(cache, CHAIN)) == 0
