"""Writers and daemons that are killed: no boundary is ever found in part, and none that was committed is lost."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import nexuskv
from nexuskv.protocol import messages as m
from tests.groups.conftest import HYBRID
from tests.support import processes
from tests.support.boundaries import boundary_keys, fill_boundary, put_boundaries, verified_boundary
from tests.support.daemon import Daemon
from tests.support.figures import writing
from tests.support.pages import fill
from tests.support.relay import relaying
from tests.support.threads import Task, last, together, writer
from tests.support.waiting import until

BOUNDARIES = 4
STEPS = ("reserved", "half a page", "a member", "a boundary", "committed one", "filled all")


@pytest.fixture
def client(daemon: Daemon) -> Iterator[nexuskv.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def group(client: nexuskv.Client) -> nexuskv.Group:
    return client.open_group(HYBRID, model="m")


def engine(pipe: Connection, address: str, step: str) -> None:
    """An engine that gets as far as `step` with a sequence of boundaries, and says so."""
    client = nexuskv.connect(address)
    group = client.open_group(HYBRID, model="m")
    boundaries = group.reserve(boundary_keys(group, BOUNDARIES))
    if step == "half a page":
        page = boundaries[0][0][0].buffer
        page[: page.nbytes // 2] = 0xAA
    elif step == "a member":
        fill(boundaries[0][0])
    elif step == "a boundary":
        fill_boundary(boundaries[0])
    elif step == "committed one":
        fill_boundary(boundaries[0])
        boundaries[0].commit()
        fill_boundary(boundaries[1])
        client.stats()  # by now the daemon has dealt with what was sent before
    elif step == "filled all":
        for boundary in boundaries:
            fill_boundary(boundary)
    pipe.send(len(boundaries))
    if pipe.recv() == "commit":
        boundaries.commit()
        pipe.send("committed")
    time.sleep(3600)


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_writer_leaves_no_half_boundary(
    daemon: Daemon, client: nexuskv.Client, group: nexuskv.Group, step: str
) -> None:
    whole = 1 if step == "committed one" else 0
    keys = boundary_keys(group, BOUNDARIES)
    with processes.running(engine, daemon.address, step) as dead:
        assert dead.receive() == BOUNDARIES
        assert verified_boundary(group, keys) == whole
        assert {status.state for status in group.status(keys)[whole:]} == {"being_written"}
        dead.kill()
        dead.join()
    until(lambda: writing(client) == 0, "its slots came back")
    assert verified_boundary(group, keys) == group.lookup(keys) == whole
    assert [arena.resident for arena in client.stats().arenas] == [2 * whole, 2 * whole, whole]
    assert put_boundaries(group, keys) == BOUNDARIES - whole
    assert verified_boundary(group, keys) == BOUNDARIES


@pytest.mark.parametrize("step", ["reserved", "committed one"])
def test_a_killed_daemon_keeps_what_was_committed_of_a_writer_that_lives(
    daemon: Daemon, client: nexuskv.Client, group: nexuskv.Group, step: str
) -> None:
    whole = 1 if step == "committed one" else 0
    keys = boundary_keys(group, BOUNDARIES)
    with processes.running(engine, daemon.address, step) as survivor:
        survivor.receive()
        daemon.stop(signal.SIGKILL)
        daemon.restart()
        assert verified_boundary(group, keys) == whole
        assert writing(client) == 5 * (BOUNDARIES - whole)
        survivor.send("commit")
        with pytest.raises(nexuskv.Disconnected):
            survivor.receive()
    until(lambda: writing(client) == 0, "its slots came back")
    assert verified_boundary(group, keys) == whole
    assert put_boundaries(group, keys) == BOUNDARIES - whole


def test_boundaries_stay_whole_over_restarts(
    daemon: Daemon, client: nexuskv.Client, group: nexuskv.Group
) -> None:
    keys = boundary_keys(group, BOUNDARIES)
    put_boundaries(group, keys)
    for left in (3, 2):
        daemon.stop(signal.SIGKILL)
        assert verified_boundary(group, keys) == left + 1, "hits go on without the daemon"
        daemon.restart()
        assert verified_boundary(group, keys) == left + 1
        evicted = client.evict("checkpoint", 1)
        assert evicted.pages == 5, "the next daemon evicts a boundary as a whole"
        assert verified_boundary(group, keys) == left
        assert [arena.resident for arena in client.stats().arenas] == [2 * left, 2 * left, left]
    assert daemon.hand_over() == 0
    daemon.restart()
    assert put_boundaries(group, keys) == 2
    assert client.evict("attention").pages == 5 * BOUNDARIES


def test_a_lost_segment_takes_the_boundaries_along(
    daemon: Daemon, client: nexuskv.Client, group: nexuskv.Group
) -> None:
    keys = boundary_keys(group, BOUNDARIES)
    put_boundaries(group, keys)
    with group.match(keys) as hit:
        (lost,) = {handle.segment for handle in hit[2].handles}
    client.close()
    daemon.stop(signal.SIGKILL)
    Path(f"/dev/shm/nexuskv-{daemon.instance}-data-{lost}").unlink()
    daemon.restart()
    with daemon.client() as other:
        theirs = other.open_group(HYBRID, model="m")
        assert verified_boundary(theirs, keys) == 0
        assert [arena.resident for arena in other.stats().arenas] == [0, 0, 0]
        assert put_boundaries(theirs, keys) == BOUNDARIES


def test_a_segment_that_each_daemon_dies_of_is_a_miss(daemon: Daemon, group: nexuskv.Group) -> None:
    with relaying(daemon) as relay, nexuskv.connect(relay.address) as client:
        mine = client.open_group(HYBRID, model="m")
        keys = boundary_keys(group, BOUNDARIES)
        put_boundaries(group, keys)
        relay.fatal = (m.Map,)
        assert verified_boundary(mine, keys) == mine.lookup(keys) == 0
        assert relay.deaths > 1
        relay.fatal = ()
        until(lambda: verified_boundary(mine, keys) == BOUNDARIES, "the client has a daemon that lives")


def look(group: nexuskv.Group, known: dict[int, int], found: list[int]) -> Task:
    """Reads what was written last, every byte of it, while it is evicted and its daemon killed."""

    def read(end: threading.Event) -> None:
        while not end.is_set():
            if known:
                found.append(verified_boundary(group, boundary_keys(group, BOUNDARIES, last(known))))

    return read


def load(client: nexuskv.Client, first: int, known: dict[int, int]) -> Task:
    """Writes sequences, one after the other."""

    def put(branch: int) -> int:
        group = client.open_group(HYBRID, model="m")
        return put_boundaries(group, boundary_keys(group, BOUNDARIES, branch))

    return writer(put, range(first, first + 100_000), known)


def test_kills_under_load(daemon: Daemon) -> None:
    seed = int.from_bytes(os.urandom(4))
    dice = random.Random(seed)
    known: dict[int, int] = {}
    found: list[int] = []
    with daemon.client() as one, daemon.client() as other, daemon.client() as third:
        reader = third.open_group(HYBRID, model="m")
        with together(load(one, 0, known), load(other, 100_000, known), look(reader, known, found)):
            until(lambda: any(found), "the reader found what was written")
            for _ in range(6):
                time.sleep(dice.uniform(0.0, 0.15))
                daemon.stop(signal.SIGKILL)
                daemon.restart()
    with daemon.client() as client:
        until(lambda: writing(client) == 0, "nobody writes any more")
        group = client.open_group(HYBRID, model="m")
        each = {
            branch: verified_boundary(group, boundary_keys(group, BOUNDARIES, branch)) for branch in known
        }
        assert each[last(known)] == BOUNDARIES, f"seed {seed}"
        attention, indexer, checkpoint = (arena.resident for arena in client.stats().arenas)
        assert attention == indexer == 2 * checkpoint, f"seed {seed}: a half boundary"
        assert sum(each.values()) <= checkpoint, f"seed {seed}"
