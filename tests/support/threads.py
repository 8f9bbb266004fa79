"""Threads of a test, none of which dies unheard.

Owns their start and end. What a thread raised is raised in the test, before any assert can fail for want of its work.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor

import nexuskv

Task = Callable[[threading.Event], None]
"""Works until the event is set."""


@contextlib.contextmanager
def together(*tasks: Task) -> Iterator[None]:
    """Runs each task in a thread of its own while the block runs; then raises what one of them raised."""
    end = threading.Event()
    with ThreadPoolExecutor(len(tasks)) as pool:
        running = [pool.submit(task, end) for task in tasks]
        try:
            yield
        finally:
            end.set()
            for each in running:
                each.result()


def writer(put: Callable[[int], int], branches: Iterable[int], known: MutableMapping[int, int]) -> Task:
    """A task that `put`s one branch after the other, and notes in `known` how much of each it was told is committed.

    The daemon may be killed and its arenas be full meanwhile.
    """

    def write(end: threading.Event) -> None:
        for branch in branches:
            if end.is_set():
                return
            try:
                known[branch] = put(branch)
            except (nexuskv.Disconnected, nexuskv.ArenaFull):
                time.sleep(0.01)

    return write


def last(known: Mapping[int, int]) -> int:
    """The branch that was noted last: eviction takes it after all others."""
    return next(reversed(list(known)))
