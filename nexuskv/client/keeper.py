"""Keeps one live session to a daemon, across its restarts and this process's forks.

Owns the renewal: after the daemon went away, or after a fork, the next use makes a new session. Safe to use from
several threads; a forked child never touches its parent's socket.
"""

import os
import threading
import weakref
from pathlib import Path

from nexuskv.client.session import Session
from nexuskv.errors import Closed

_keepers: "weakref.WeakSet[SessionKeeper]" = weakref.WeakSet()


class SessionKeeper:
    """`path` is the daemon's socket, `timeout` bounds every request in seconds."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Makes the first session. Raises Disconnected, VersionMismatch."""
        self._path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._closed = False
        self._session: Session | None = Session(path, timeout)
        _keepers.add(self)

    @property
    def session(self) -> Session:
        """The live session, a new one if the old one ended. Raises Closed, Disconnected."""
        session = self._session
        if session is not None and session.alive:
            return session
        return self._renew()

    def close(self) -> None:
        """Ends the session for good."""
        with self._lock:
            self._closed = True
            self._leave("its client is closed, and its pins went with it: connect and match anew")

    def forked(self) -> None:
        """In a child: lets go of the parent's session without ending it."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        self._leave(
            "opened before fork(): its pins belong to the parent; match or reserve again in the child"
        )

    def _leave(self, why: str) -> None:
        if self._session is not None:
            self._session.leave(why)
            self._session = None

    def _renew(self) -> Session:
        with self._lock:
            if self._closed:
                raise Closed("this client is closed: connect anew")
            if self._session is None or not self._session.alive:
                self._session = Session(self._path, self._timeout)
            return self._session


def _after_fork() -> None:
    for keeper in list(_keepers):
        keeper.forked()


os.register_at_fork(after_in_child=_after_fork)
