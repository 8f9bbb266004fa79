"""Checks of how connections end: whatever happens, each pull ends once and in time, and nothing stays behind."""

import os
import threading
import time
from pathlib import Path

from nexuskv_transport.base import Connection, Outcome, Pull
from nexuskv_transport.checks.pair import Pair
from nexuskv_transport.checks.pulling import (
    GRACE_SECONDS,
    all_ok,
    arrived,
    pull_all,
    side_by_side,
    soon,
    wait_for,
)

MIB = 1 << 20


def killed(pair: Pair) -> None:
    """The peer dies while it serves: each pull ends by its deadline, and what is reported as arrived is right."""
    pulls = _sixteen_large(pair)
    connection = pair.connect()
    taken = connection.pull(pulls, soon())
    pair.kill()
    _ended_midway(connection, pulls, taken)


def killed_between(pair: Pair) -> None:
    """The peer dies while nothing is asked of it: the next pull ends by its deadline."""
    (pull,) = side_by_side(pair, [MIB], [0])
    connection = pair.connect()
    assert all_ok(pull_all(connection, [pull]))
    pair.kill()
    (outcome,) = pull_all(connection, [pull], seconds=5).values()
    assert outcome in {Outcome.CLOSED, Outcome.DEADLINE}
    assert connection.ended


def closed(pair: Pair) -> None:
    """Closed here with pulls outstanding: each ends once, and nothing is written afterwards."""
    pulls = _sixteen_large(pair)
    connection = pair.connect()
    taken = connection.pull(pulls, soon())
    connection.close()
    outcomes = {done.id: done.outcome for done in connection.completed()}
    assert len(outcomes) == taken
    assert set(outcomes.values()) <= {Outcome.OK, Outcome.CLOSED}
    assert connection.completed() == []
    before = [bytes(pull.into) for pull in pulls]
    time.sleep(0.2)
    assert all(pull.into == then for pull, then in zip(pulls, before, strict=True))
    assert connection.pull(pulls[:1], soon()) == 1
    assert [done.outcome for done in connection.completed()] == [Outcome.CLOSED]
    connection.close()


def deadline(pair: Pair) -> None:
    """A peer that says nothing: the pull ends by its deadline, not before, and its connection with it."""
    pair.stall()
    connection = pair.connect()
    pulls = side_by_side(pair, [MIB] * 2, [0, MIB])
    start = time.monotonic()
    assert connection.pull(pulls[:1], start + 0.5) == 1
    assert connection.pull(pulls[1:], start + 60) == 1
    outcomes = wait_for(connection, 2, seconds=0.5)
    assert 0.5 <= time.monotonic() - start < 0.5 + GRACE_SECONDS
    assert outcomes == {0: Outcome.DEADLINE, 1: Outcome.CLOSED}, outcomes
    assert connection.ended


def passed_deadline(pair: Pair) -> None:
    """A deadline that has passed already is no error of the call."""
    connection = pair.connect()
    (pull,) = side_by_side(pair, [MIB], [0])
    assert pull_all(connection, [pull], seconds=-1)[0] in {Outcome.OK, Outcome.DEADLINE}


def nobody_there(pair: Pair) -> None:
    """Nobody listens any more: pulls end, by their deadline at the latest, and the connection says why."""
    pair.kill()
    connection = pair.connect()
    (pull,) = side_by_side(pair, [MIB], [0])
    (outcome,) = pull_all(connection, [pull], seconds=5).values()
    assert outcome in {Outcome.CLOSED, Outcome.DEADLINE}
    assert connection.ended


def nothing_leaks(pair: Pair) -> None:
    """Connections that were used and closed leave neither descriptors nor threads."""
    (pull,) = side_by_side(pair, [MIB], [0])
    assert all_ok(pull_all(pair.connect(), [pull]))  # what a transport makes once is made now
    before = _held()
    for _ in range(5):
        connection = pair.connect()
        assert all_ok(pull_all(connection, [pull]))
        connection.pull([pull], soon())
        connection.close()
        connection.completed()
    assert _settles_at(before), f"before {before}, now {_held()}"


def _sixteen_large(pair: Pair) -> list[Pull]:
    return side_by_side(pair, [8 * MIB] * 16, [index % 4 * 8 * MIB for index in range(16)])


def _ended_midway(connection: Connection, pulls: list[Pull], taken: int) -> None:
    outcomes = wait_for(connection, taken)
    assert set(outcomes.values()) <= {Outcome.OK, Outcome.CLOSED, Outcome.DEADLINE}
    assert all(arrived(pulls[id_]) for id_, outcome in outcomes.items() if outcome is Outcome.OK)


def _held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir())), threading.active_count()


def _settles_at(before: tuple[int, int]) -> bool:
    """Whether no more is held than before, after a moment for ends that the other side has to notice."""
    until = time.monotonic() + GRACE_SECONDS
    while any(now > then for now, then in zip(_held(), before, strict=True)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


CHECKS = (killed, killed_between, closed, deadline, passed_deadline, nobody_there, nothing_leaks)
