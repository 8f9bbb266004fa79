"""The one clock of a transport: a thread that looks after whoever has something due.

Owns when to look. Knows nothing of what is due: deadlines, pings and handshakes that take too long are judged by those
who have them, and nothing that it calls waits.
"""

import threading
import time
from typing import Protocol

NEVER = float("inf")


class Watched(Protocol):
    """Something that has to act at certain times."""

    def check(self, now: float) -> float:
        """Does what is due by `now` (time.monotonic), and returns when to look again. Never waits."""
        ...


class Watch:
    """Safe to use from several threads. Its thread lives from the first `add` to `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._watched: set[Watched] = set()
        self._next = NEVER
        self._open = True
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        """Looks after it, from now on."""
        with self._changed:
            self._watched.add(watched)
            if self._thread is None and self._open:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self.look_by(0)

    def remove(self, watched: Watched) -> None:
        """Forgets it."""
        with self._changed:
            self._watched.discard(watched)

    def look_by(self, when: float) -> None:
        """Looks at all of them at `when` at the latest. Costs nothing if it would have anyway."""
        if when < self._next:
            with self._changed:
                self._next = min(self._next, when)
                self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            with self._changed:
                watched, self._next = list(self._watched), NEVER
            # Whoever asks from here on to be looked at earlier wins over what is found below.
            found = min((each.check(time.monotonic()) for each in watched), default=NEVER)
            with self._changed:
                self._next = min(self._next, found)

    def _wait(self) -> bool:
        with self._changed:
            while self._open and (left := self._next - time.monotonic()) > 0:
                self._changed.wait(None if left == NEVER else left)
            return self._open
