"""Keeps shared-memory objects at the length that they were made with.

Owns one thread, which looks once in a while: whoever may write an object may make it longer, and so take memory from
everybody on the host. Knows nothing of what lies in an object.
"""

import threading

from nexuskv_daemon.shm import Namespace

SECONDS = 5.0


class Trimmer:
    """Looks from `start` to `stop`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trim")

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends, after a look that is under way."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(SECONDS):
            self._namespace.trim()
