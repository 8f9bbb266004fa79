"""What checks do again and again: make pulls, offer them, wait for their ends.

Owns the waiting, as an event loop does it. Knows nothing of what is expected of the outcome.
"""

import select
import time
from collections.abc import Sequence

from nexuskv_transport.base import Connection, Done, Outcome, Pull
from nexuskv_transport.checks.far import SERVED, content
from nexuskv_transport.checks.pair import Pair

SECONDS = 30.0
"""Time for what should work; nothing that does comes near it."""
GRACE_SECONDS = 10.0
"""How late the end of a pull may come on a machine that is busy with other things."""


def side_by_side(
    pair: Pair, sizes: Sequence[int], offsets: Sequence[int], number: int = SERVED
) -> list[Pull]:
    """A pull for each size and offset, into one piece of fresh memory, one after another."""
    memory, at = pair.memory(sum(sizes)), 0
    pulls = []
    for id_, (nbytes, offset) in enumerate(zip(sizes, offsets, strict=True)):
        pulls.append(Pull(id_, pair.region(number), offset, memory[at : at + nbytes]))
        at += nbytes
    return pulls


def pull_all(connection: Connection, pulls: Sequence[Pull], seconds: float = SECONDS) -> dict[int, Outcome]:
    """Offers them until all are taken, and waits for all ends."""
    deadline = time.monotonic() + seconds
    ends: list[Done] = []
    offered = 0
    while len(ends) < len(pulls):
        if offered < len(pulls):
            offered += connection.pull(pulls[offered:], deadline)
        ends += wait(connection, deadline + GRACE_SECONDS)
    return once_each(ends)


def wait_for(connection: Connection, count: int, seconds: float = SECONDS) -> dict[int, Outcome]:
    """The ends of `count` pulls that were taken; none may be outstanding for longer than `seconds`."""
    until = time.monotonic() + seconds + GRACE_SECONDS
    ends: list[Done] = []
    while len(ends) < count:
        ends += wait(connection, until)
    return once_each(ends)


def wait(connection: Connection, until: float) -> list[Done]:
    """What is done next; nothing if the connection has just ended. Fails when nothing at all happens."""
    readable, _, _ = select.select([connection], [], [], max(0, until - time.monotonic()))
    assert readable, "the connection says nothing, though a pull's deadline has passed"
    return connection.completed()


def once_each(ends: Sequence[Done]) -> dict[int, Outcome]:
    """The outcome of each pull. Fails if one ended twice."""
    assert len({done.id for done in ends}) == len(ends), f"a pull ended twice: {ends}"
    return {done.id: done.outcome for done in ends}


def all_ok(outcomes: dict[int, Outcome]) -> bool:
    """Whether nothing failed."""
    return set(outcomes.values()) == {Outcome.OK}


def arrived(pull: Pull, number: int = SERVED) -> bool:
    """Whether the extent holds the bytes that it should."""
    return pull.into == memoryview(content(number))[pull.offset : pull.offset + pull.into.nbytes]


def soon(seconds: float = SECONDS) -> float:
    """A deadline."""
    return time.monotonic() + seconds
