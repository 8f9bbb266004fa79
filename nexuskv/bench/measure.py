"""How to compare two things on a machine that is never quiet.

Owns where processes run and in which order things are timed. What is compared takes turns in short rounds, so that
whatever else the machine does falls on both; the order of a round is turned each time, so that none always follows the
same other. A first round warms memory, page tables and caches, and does not count.
"""

import contextlib
import enum
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

Action = Callable[[], Sequence[float]]
"""Does something, and returns the seconds that it took: once for all, or for each of its parts."""


class Placement(enum.StrEnum):
    """Where the processes of a measurement run.

    Two processes that wait for each other are slower on two idle CPUs than on one, because each wake-up has to bring a
    CPU out of its halt, in a virtual machine by way of the hypervisor: 50 us for a round trip instead of 10. With pages
    to copy it is the other way round, as two CPUs do two things at once. Processes that are free to run anywhere settle
    in either state by chance, the floor's and the figure's independently of each other: their ratio says little.
    """

    PINNED = "pinned"  # all on one CPU
    APART = "apart"  # this process on one CPU, the others on others
    FREE = "free"  # wherever the scheduler puts them


def placements() -> list[Placement]:
    """Those that can be told apart here."""
    return [each for each in Placement if each is not Placement.APART or len(os.sched_getaffinity(0)) > 1]


@contextlib.contextmanager
def placed(placement: Placement, others: Iterable[int]) -> Iterator[None]:
    """Runs this process and `others` (their pids) in a placement, then gives them all their CPUs back."""
    everywhere = os.sched_getaffinity(0)
    one = {max(everywhere)}
    _move([os.getpid()], everywhere if placement is Placement.FREE else one)
    _move(others, {"pinned": one, "apart": everywhere - one, "free": everywhere}[placement])
    try:
        yield
    finally:
        _move([os.getpid(), *others], everywhere)


def repeated(operation: Callable[[], object], times: int) -> Action:
    """Times one call after another."""

    def action() -> list[float]:
        samples = []
        for _ in range(times):
            start = time.perf_counter()
            operation()
            samples.append(time.perf_counter() - start)
        return samples

    return action


def interleaved(rounds: int, actions: Mapping[str, Action]) -> dict[str, float]:
    """Runs the actions in turn and returns the median of each one's seconds."""
    samples: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for turn in range(rounds):
        for name in list(actions) if turn % 2 == 0 else reversed(list(actions)):
            samples[name].extend(actions[name]())
    return {name: median(seconds) for name, seconds in samples.items()}


def _move(processes: Iterable[int], cpus: Collection[int]) -> None:
    for process in processes:
        for task in list(Path(f"/proc/{process}/task").iterdir()):
            with contextlib.suppress(ProcessLookupError):  # a thread that just ended
                os.sched_setaffinity(int(task.name), cpus)
