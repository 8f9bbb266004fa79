"""Keeps one live session to a daemon, across its restarts and this process's forks.

Owns the renewal: after the daemon went away, or after a fork, the next use makes a new session. Safe to use from
several threads; a forked child never touches its parent's socket.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nexuskv.client.session import Session
from nexuskv.errors import Closed, DeadlineExceeded, Disconnected
from nexuskv.gain import Paths

T = TypeVar("T")
RETRY_SECONDS = 0.1
"""Between two looks for a daemon that went away, while hits go on without it."""
MOST_IDLE = 8
LEAST_SECONDS = 1.0
"""For greeting a daemon that may be busy, whatever is asked of it then."""
_keepers: "weakref.WeakSet[SessionKeeper]" = weakref.WeakSet()


class SessionKeeper:
    """`path` is the daemon's socket, `timeout` bounds every request in seconds."""

    def __init__(self, path: Path, timeout: float, *, shared: bool) -> None:
        """Makes the first session; without `shared` it asks the daemon for each hit. Raises Disconnected."""
        self._path = path
        self._timeout = timeout
        self._shared = shared
        self._next_try = 0.0
        self.paths = Paths()
        """What fetching costs: known longer than any session lives."""
        self._lock = threading.Lock()
        self._closed = False
        self._idle: list[Session] = []
        self._past: weakref.WeakSet[Session] = weakref.WeakSet()
        self._session: Session | None = Session(path, timeout, shared=shared)
        _keepers.add(self)

    @property
    def session(self) -> Session:
        """The live session, a new one if the old one ended. Raises Closed, Disconnected."""
        session = self._session
        if session is not None and session.alive:
            return session
        return self._renew()

    def use(self, action: Callable[[Session], T]) -> T:
        """Performs `action` in the live session, once more in a new one if the daemon was restarted meanwhile.

        For what holds nothing of the old session. Raises Closed, Disconnected, and what `action` raises.
        """
        try:
            return action(self.session)
        except Disconnected:
            return action(self.session)

    def aside(self, action: Callable[[Session], T], seconds: float) -> T:
        """Performs `action` in a session of its own, so that other calls do not wait behind one that takes `seconds`.

        For what has no segments and holds nothing. Raises Closed, Disconnected, and what `action` raises.
        """
        _ = self.session  # a closed client says so, and one whose daemon was restarted has found the new one
        with self._lock:
            session = self._idle.pop() if self._idle else None
        if session is None or not session.alive:
            session = Session(self._path, min(self._timeout, max(seconds, LEAST_SECONDS)), shared=False)
        session.wait_at_most(seconds)
        try:
            return action(session)
        finally:
            self._put_aside(session)

    def _put_aside(self, session: Session) -> None:
        with self._lock:
            if not self._closed and session.alive and len(self._idle) < MOST_IDLE:
                self._idle.append(session)
            else:
                session.close()

    @property
    def reading(self) -> Session:
        """The session to read with: a live one, or the last one's reader while the daemon is away.

        Raises Closed, Disconnected.
        """
        session = self._session
        if session is not None and (session.alive or self._daemon_is_away(session)):
            return session
        return self._renew()

    def _daemon_is_away(self, session: Session) -> bool:
        """Whether a dead session's reader is the best there is. The daemon is looked for now and then only."""
        if session.reader is None or not session.shared:
            return False
        now = time.monotonic()
        if now < self._next_try:
            return True
        self._next_try = now + RETRY_SECONDS
        try:
            self._renew()
        except Disconnected:
            return True
        except DeadlineExceeded:  # it is stopped: not to be waited for at each hit
            self._next_try = time.monotonic() + self._timeout
            return True
        return False

    def close(self) -> None:
        """Ends the session for good."""
        with self._lock:
            self._closed = True
            self._leave("its client is closed, and its pins went with it: connect and match anew")

    def forked(self) -> None:
        """In a child: lets go of the parent's session without ending it."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        self._leave(
            "opened before fork(): its pins belong to the parent; match or reserve again in the child",
            forked=True,
        )

    def _leave(self, why: str, *, forked: bool = False) -> None:
        for session in (self._session, *self._past, *self._idle):
            if session is not None:
                session.leave(why, forked=forked)
        self._session = None
        self._idle.clear()

    def _renew(self) -> Session:
        with self._lock:
            if self._closed:
                raise Closed("this client is closed: connect anew")
            if self._session is None or not self._session.alive:
                self._session = self._successor(self._session)
            return self._session

    def _successor(self, old: Session | None) -> Session:
        """A new session. The old one is given up only when the new one can do all that it could."""
        fresh = Session(self._path, self._timeout, shared=self._shared)
        if old is None:
            return fresh
        try:
            fresh.follow(old)
        except BaseException:
            fresh.close()
            raise
        old.close()  # its open hits and reservations keep what they need
        self._past.add(old)
        return fresh


def _after_fork() -> None:
    for keeper in list(_keepers):
        keeper.forked()


os.register_at_fork(after_in_child=_after_fork)
