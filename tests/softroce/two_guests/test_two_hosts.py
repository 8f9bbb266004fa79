"""Pages between two hosts by RDMA READ, and what becomes of pulls when the other host, or the wire, fails."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from nexuskv_transport import Connection, Outcome, Plain, Pull, Transport, open_transport
from nexuskv_transport.checks.far import OURS, SERVED, FarCard, FarOrders, Memory, content
from nexuskv_transport.checks.pulling import all_ok, arrived, pull_all, wait_for
from tests.softroce.agent import Remote, on_the_other_host
from tests.softroce.guests import FIRST, SECOND
from tests.softroce.pausing import paused

MIB = 1 << 20
HERE, THERE = (f"rdma://{host.address}:0" for host in (FIRST, SECOND))
OPEN = Plain(anywhere=True)
SECONDS = 40.0


class Far(NamedTuple):
    """The serving process on the other host."""

    process: Remote
    card: FarCard


@pytest.fixture(scope="module")
def near() -> Iterator[Transport]:
    with open_transport(HERE, OPEN) as transport:
        yield transport


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    with serving() as started:
        yield started


@pytest.fixture
def into(near: Transport) -> Iterator[memoryview]:
    memory = Memory(32 * MIB)
    near.expose(1, memory.view, fd=memory.fd, tenant=OURS)
    yield memory.view
    near.withdraw(1)
    memory.view.release()  # pytest holds it for a while, and with it the mapping
    memory.close()


@contextlib.contextmanager
def serving() -> Iterator[Far]:
    with on_the_other_host("-m", "nexuskv_transport.checks") as process:
        process.tell(msgspec.json.encode(FarOrders(THERE, OPEN)).decode())
        yield Far(process, msgspec.json.decode(process.hear(), type=FarCard))


def pages(far: Far, into: memoryview, nbytes: int) -> list[Pull]:
    """All of the served region, in pages of that size."""
    region = far.card.regions[SERVED]
    return [
        Pull(index, region, offset, into[offset : offset + nbytes])
        for index, offset in enumerate(range(0, into.nbytes, nbytes))
    ]


def outcomes(connection: Connection, pulls: list[Pull], seconds: float) -> dict[int, Outcome]:
    """Of pulls that have to end within `seconds`. Those that are OK must have arrived."""
    found = wait_for(connection, len(pulls), seconds)
    assert all(arrived(pull) for pull in pulls if found[pull.id] is Outcome.OK)
    return found


def test_pages_of_two_sizes_arrive(near: Transport, far: Far, into: memoryview) -> None:
    with near.connect(far.card.address) as connection:
        for nbytes in (65536, MIB):
            into[:] = bytes(into.nbytes)
            assert all_ok(pull_all(connection, pages(far, into, nbytes), SECONDS))
            assert into == content(SERVED)


def test_the_peer_is_killed_in_mid_pull(near: Transport, into: memoryview) -> None:
    with serving() as far, near.connect(far.card.address) as connection:
        pulls = pages(far, into, MIB)
        assert connection.pull(pulls, time.monotonic() + 10) == len(pulls)
        done = _first(connection)
        far.process.kill()
        found = outcomes(connection, [pull for pull in pulls if pull.id not in done], 10)
        assert set(found.values()) <= {Outcome.OK, Outcome.CLOSED, Outcome.DEADLINE}
        assert set(found.values()) != {Outcome.OK}
        assert connection.ended
        _nothing_more_is_written(into)


def test_a_link_that_is_down_for_a_moment_costs_its_connection_at_most(
    near: Transport, far: Far, into: memoryview
) -> None:
    with near.connect(far.card.address) as connection:
        pulls = pages(far, into, MIB)
        assert connection.pull(pulls, time.monotonic() + SECONDS) == len(pulls)
        done = _first(connection)
        _link("down")
        time.sleep(0.5)
        _link("up")
        found = outcomes(connection, [pull for pull in pulls if pull.id not in done], SECONDS)
        assert set(found.values()) <= {Outcome.OK, Outcome.CLOSED}  # long before the deadline
    _works_again(near, far, into)


def test_a_link_that_stays_down_ends_pulls_in_time(near: Transport, far: Far, into: memoryview) -> None:
    with near.connect(far.card.address) as connection:
        pulls = pages(far, into, MIB)
        assert connection.pull(pulls, time.monotonic() + 3) == len(pulls)
        done = _first(connection)
        _link("down")
        try:
            found = outcomes(connection, [pull for pull in pulls if pull.id not in done], 3)
        finally:
            _link("up")
        assert {Outcome.CLOSED, Outcome.DEADLINE} & set(found.values())
        _nothing_more_is_written(into)
    _works_again(near, far, into)


def test_a_pause_of_the_other_host_is_survived(near: Transport, far: Far, into: memoryview) -> None:
    with near.connect(far.card.address) as connection:
        pulls = pages(far, into, MIB)
        with paused(0.5):
            assert connection.pull(pulls, time.monotonic() + SECONDS) == len(pulls)
            assert all_ok(outcomes(connection, pulls, SECONDS))


def test_a_long_pause_of_the_other_host_ends_pulls_in_time(
    near: Transport, far: Far, into: memoryview
) -> None:
    with near.connect(far.card.address) as connection:
        pulls = pages(far, into, MIB)
        assert all_ok(pull_all(connection, pulls[:1]))
        with paused(5):
            start = time.monotonic()
            assert connection.pull(pulls, start + 1) == len(pulls)
            found = outcomes(connection, pulls, 1)
            assert {Outcome.CLOSED, Outcome.DEADLINE} & set(found.values())
            _nothing_more_is_written(into)
    _works_again(near, far, into)


def _first(connection: Connection) -> set[int]:
    """Waits until some are done, but not all."""
    return set(wait_for(connection, 1))


def _works_again(near: Transport, far: Far, into: memoryview) -> None:
    until = time.monotonic() + SECONDS
    while True:
        with near.connect(far.card.address) as connection:
            if all_ok(pull_all(connection, pages(far, into, MIB)[:4], 5)):
                return
        assert time.monotonic() < until, connection.ended
        time.sleep(0.5)


def _nothing_more_is_written(into: memoryview) -> None:
    before = bytes(into)
    time.sleep(0.3)
    assert into == before


def _link(state: str) -> None:
    subprocess.run(["ip", "link", "set", FIRST.link, state], check=True)
