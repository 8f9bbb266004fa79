"""Work that would hold up the event loop, done in threads; results come back through a descriptor it can poll.

Owns two threads: one makes segments, one warms them, so that a segment needed now never waits behind the prefaulting of
another. Knows nothing of sessions or the store.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from nexuskv.errors import ArenaFull
from nexuskv_daemon.arenas import SegmentObject, SegmentObjects

Outcome = tuple[int, SegmentObject | ArenaFull]


class Worker:
    """`ready` becomes readable when `outcomes` has something to give."""

    def __init__(self, objects: SegmentObjects) -> None:
        self.ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._objects = objects
        self._done: SimpleQueue[Outcome] = SimpleQueue()
        self._making = ThreadPoolExecutor(1, "make-segment")
        self._warming = ThreadPoolExecutor(1, "warm-segment")

    def make(self, number: int, nbytes: int) -> None:
        """Starts making a segment; its outcome names it by `number`."""
        self._making.submit(self._objects.make, number, nbytes).add_done_callback(self._deliver(number))

    def warm(self, made: SegmentObject) -> None:
        """Starts prefaulting a segment."""
        self._warming.submit(made.warming.warm)

    def outcomes(self) -> list[Outcome]:
        """What is done since the last call."""
        os.eventfd_read(self.ready)
        found: list[Outcome] = []
        while not self._done.empty():
            found.append(self._done.get())
        return found

    def stop(self) -> list[Outcome]:
        """Waits for the making of segments, drops what was still to be warmed. Returns what nobody took."""
        self._making.shutdown(wait=True)
        self._warming.shutdown(wait=False, cancel_futures=True)
        os.eventfd_write(self.ready, 1)
        left = self.outcomes()
        os.close(self.ready)
        return left

    def join(self) -> None:
        """Waits for the warming thread, which ends soon once its segments are closed."""
        self._warming.shutdown(wait=True)

    def _deliver(self, number: int) -> Callable[[Future[SegmentObject]], None]:
        def deliver(future: Future[SegmentObject]) -> None:
            error = future.exception()
            if error is None:
                self._done.put((number, future.result()))
            else:
                self._done.put((number, error if isinstance(error, ArenaFull) else ArenaFull(repr(error))))
            os.eventfd_write(self.ready, 1)

        return deliver
