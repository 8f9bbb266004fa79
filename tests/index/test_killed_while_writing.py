"""A daemon killed while engines write: what was committed stays, what was not comes back once its writer lets go."""

import contextlib
import random
import signal
import time
from multiprocessing.connection import Connection

import pytest

import nexuskv
from tests.index.conftest import PAGES, SLOTS
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.figures import figures
from tests.support.pages import content, fill, keys, put, small, verified
from tests.support.threads import Task, last, together, writer
from tests.support.waiting import until

CHAIN = 8
COMMITTED = 3


def engine(pipe: Connection, address: str, shared: bool) -> None:
    """An engine that reserves a chain and commits some of it; the rest it writes when told, and holds on to it."""
    client = nexuskv.connect(address, shared=shared)
    cache = client.open(PAGES, model="m")
    pages = cache.reserve(keys(cache, CHAIN))
    for page in list(pages)[:COMMITTED]:
        fill([page])
        page.commit()
    client.stats()  # by now the daemon has dealt with what was sent before
    pipe.send(len(pages))
    if pipe.recv() == "be thrown out":
        with contextlib.suppress(nexuskv.BadRequest):
            client.evict("x" * 300_000)
        pipe.recv()
    for page in list(pages)[COMMITTED:]:
        page.buffer[...] = 0xAA
    pipe.send("written")
    pipe.recv()
    try:
        pages.commit()
    except nexuskv.Disconnected:
        pipe.send("disconnected")
    client.stats()
    pipe.send(put(cache, keys(cache, 2, branch=5)))
    time.sleep(3600)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("end", ["killed", "handed over", "thrown out"])
def test_a_writer_that_survives_harms_nobody(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, shared: bool, end: str
) -> None:
    with processes.running(engine, daemon.address, shared) as survivor:
        assert survivor.receive() == CHAIN
        if end == "killed":
            daemon.stop(signal.SIGKILL)
            daemon.restart()
        elif end == "handed over":
            assert daemon.hand_over() == 0
            daemon.restart()
        else:
            survivor.send("be thrown out")
            until(lambda: client.stats().sessions == 1, "the daemon hung up")
        assert verified(cache, keys(cache, CHAIN)) == COMMITTED
        assert figures(client).writing == CHAIN - COMMITTED
        rest = SLOTS - CHAIN
        assert put(cache, keys(cache, rest, branch=1)) == rest
        with pytest.raises(nexuskv.ArenaFull):
            put(cache, keys(cache, SLOTS - COMMITTED, branch=2))
        assert put(cache, keys(cache, rest, branch=3)) == rest
        survivor.send("write")
        assert survivor.receive() == "written"
        assert verified(cache, keys(cache, rest, branch=3)) == rest
        states = {status.state for status in cache.status(keys(cache, CHAIN)[COMMITTED:])}
        assert states <= {"being_written"}

        survivor.send("commit")
        assert survivor.receive() == "disconnected"
        assert survivor.receive() == 2
        until(lambda: figures(client).writing == 0, "its slots came back")
    assert put(cache, keys(cache, SLOTS, branch=4)) == SLOTS
    assert verified(cache, keys(cache, SLOTS, branch=4)) == SLOTS


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_slots_of_a_dead_writer_come_back(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, when: str
) -> None:
    with processes.running(engine, daemon.address, True) as dead:
        dead.receive()
        daemon.stop(signal.SIGKILL)
        if when == "before":
            dead.kill()
            dead.join()
        daemon.restart()
        if when == "after":
            assert figures(client).writing == CHAIN - COMMITTED
            dead.kill()
            dead.join()
    until(lambda: figures(client).writing == 0, "its slots came back")

    assert verified(cache, keys(cache, CHAIN)) == COMMITTED
    assert put(cache, keys(cache, CHAIN)) == CHAIN - COMMITTED
    assert put(cache, keys(cache, SLOTS, branch=1)) == SLOTS


def test_the_same_engine_writes_anew_what_it_could_not_commit(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    wanted = keys(cache, CHAIN)
    pages = cache.reserve(wanted)
    fill(pages)
    daemon.stop(signal.SIGKILL)
    daemon.restart()
    with pytest.raises(nexuskv.Disconnected):
        pages.commit()
    del pages
    until(lambda: figures(client).writing == 0, "its slots came back")

    assert put(cache, wanted) == CHAIN
    assert verified(cache, wanted) == CHAIN


def load(client: nexuskv.Client, first: int, known: dict[int, int]) -> Task:
    """Writes chains, one after the other."""

    def put_chain(branch: int) -> int:
        cache = client.open(PAGES, model="m")
        return put(cache, keys(cache, CHAIN, branch))

    return writer(put_chain, range(first, first + 100_000), known)


def test_kills_under_load(daemon: Daemon) -> None:
    """At whatever point the daemon is hit: reserving, committing, evicting, or making its first segments."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    known: dict[int, int] = {}
    with (
        daemon.client() as one,
        daemon.client() as other,
        together(load(one, 0, known), load(other, 100_000, known)),
    ):
        for _ in range(6):
            time.sleep(dice.uniform(0.0, 0.15))
            daemon.stop(signal.SIGKILL)
            daemon.restart()
        until(lambda: known, "something was written")
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        until(lambda: figures(client).writing == 0, "nobody writes any more")
        found = {branch: verified(cache, keys(cache, CHAIN, branch)) for branch in known}
        arena = figures(client)
        assert arena.free + arena.resident == arena.slots, f"seed {seed}"
        assert sum(found.values()) <= arena.resident, f"seed {seed}"
        assert found[last(known)] == CHAIN, f"seed {seed}"
        assert put(cache, keys(cache, SLOTS, branch=999_999)) == SLOTS


def test_a_kill_while_a_segment_is_made() -> None:
    big = small("big", kib=1024)
    with running("--segment-bytes", "256MiB", memory="512MiB") as daemon, daemon.client() as client:
        cache = client.open(big, model="m")
        with together(lambda _: refused(cache)):
            until(lambda: any("-data-" in name for name in daemon.objects()), "a segment is being made")
            daemon.stop(signal.SIGKILL)
        daemon.restart()
        assert not [name for name in daemon.objects() if "-data-" in name] or client.stats().memory_used
        assert put(cache, keys(cache, 2, branch=1)) == 2
        assert verified(cache, keys(cache, 2, branch=1)) == 2


def refused(cache: nexuskv.Cache) -> None:
    try:
        put(cache, keys(cache, 2))
    except nexuskv.Disconnected:
        return


def test_pages_of_a_hit_are_not_written_by_the_next_daemon(daemon: Daemon, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, CHAIN))
    hit = cache.match(keys(cache, CHAIN))
    page = hit[0].buffer
    daemon.stop(signal.SIGKILL)
    daemon.restart("--fresh")
    for branch in range(1, 20):
        put(cache, keys(cache, SLOTS // 4, branch))
    assert bytes(page) == bytes(content(hit[0].key, page.nbytes))
    hit.close()
