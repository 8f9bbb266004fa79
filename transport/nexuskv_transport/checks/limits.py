"""Checks of what may be outstanding, and of calls that are refused before anything is sent."""

import time

from nexuskv.errors import LocalError
from nexuskv_transport.base import Connection, Limits, Pull
from nexuskv_transport.checks.far import REGION_BYTES, SERVED
from nexuskv_transport.checks.pair import Pair
from nexuskv_transport.checks.pulling import SECONDS, all_ok, arrived, pull_all, side_by_side, wait_for

KIB = 1024


def many_outstanding(pair: Pair) -> None:
    """As many pulls as the default limits allow, of a page each, in calls of eight."""
    count = Limits().pulls
    pulls = side_by_side(pair, [4096] * count, range(0, count * 4096, 4096))
    connection, deadline = pair.connect(), time.monotonic() + SECONDS
    for at in range(0, count, 8):
        assert connection.pull(pulls[at : at + 8], deadline) == 8
    # None of these was handed out yet, so all are outstanding, and there is no room.
    assert connection.pull([pulls[0]._replace(id=count, into=pair.memory(1))], deadline) == 0
    assert all_ok(wait_for(connection, count))
    assert all(map(arrived, pulls))


def back_pressure(pair: Pair) -> None:
    """Of pulls beyond a limit only the first are taken; all get through when they are offered again."""
    pulls = side_by_side(pair, [64 * KIB] * 64, range(0, 64 * 64 * KIB, 64 * KIB))
    for limits, first in ((Limits(pulls=8), 8), (Limits(nbytes=640 * KIB), 10)):
        connection = pair.connect(limits)
        assert connection.pull(pulls, time.monotonic() + SECONDS) == first
        assert all_ok(wait_for(connection, first))
        assert all_ok(pull_all(connection, pulls[first:]))
        assert all(map(arrived, pulls))
        connection.close()


def larger_than_the_limit(pair: Pair) -> None:
    """A pull that is larger than all that may be outstanding is taken when it is alone."""
    pulls = side_by_side(pair, [1024 * KIB] * 2, [0, 1024 * KIB])
    connection = pair.connect(Limits(nbytes=64 * KIB))
    assert connection.pull(pulls, time.monotonic() + SECONDS) == 1
    assert all_ok(wait_for(connection, 1))
    assert all_ok(pull_all(connection, pulls[1:]))
    assert all(map(arrived, pulls))


def impossible_pulls(pair: Pair) -> None:
    """What cannot be right is refused in the call, which then takes nothing; the connection goes on."""
    good, other = side_by_side(pair, [1000, 1000], [0, 0])
    connection = pair.connect()
    memory = pair.memory(4096)
    region = pair.region(SERVED)
    for bad in (
        other._replace(id=good.id),
        other._replace(into=good.into),
        other._replace(into=good.into[999:]),
        other._replace(into=memory[:0]),
        other._replace(into=memory[:1000].toreadonly()),
        other._replace(into=memory[:2000:2]),
        other._replace(offset=-1),
        other._replace(offset=REGION_BYTES - 999),
        Pull(7, region, REGION_BYTES, memory[:1]),
    ):
        assert _refused(connection, [good, bad]), bad
    assert all_ok(pull_all(connection, [good, other]))
    assert arrived(good)
    assert arrived(other)


def overlapping_outstanding(pair: Pair) -> None:
    """An extent of an outstanding pull can be pulled into by no other, until that is done."""
    (first,) = side_by_side(pair, [4 * 1024 * KIB], [0])
    connection = pair.connect()
    deadline = time.monotonic() + SECONDS
    assert connection.pull([first], deadline) == 1
    second = Pull(1, first.region, 64, first.into[100:200])
    assert _refused(connection, [second])
    assert all_ok(wait_for(connection, 1))
    assert arrived(first)
    assert all_ok(pull_all(connection, [second]))
    assert arrived(second)


def _refused(connection: Connection, pulls: list[Pull]) -> bool:
    try:
        connection.pull(pulls, time.monotonic() + SECONDS)
    except LocalError:
        return True
    return False


CHECKS = (many_outstanding, back_pressure, larger_than_the_limit, impossible_pulls, overlapping_outstanding)
