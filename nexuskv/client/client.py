"""The client: finds the daemon, keeps one session to it, opens caches.

Owns the session and its renewal: after the daemon went away, or after a fork, the next call makes a new one. Safe to
use from several threads; a forked child never touches its parent's socket.
"""

import os
import threading
import weakref
from types import TracebackType
from typing import Self

from nexuskv.client.cache import Cache
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.errors import Closed
from nexuskv.ipc import address as addresses
from nexuskv.protocol import messages as m

_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


class Client:
    """A connection to one daemon. Close it, or use it in a `with`: its pins and reservations end with it."""

    def __init__(self, address: str | None = None, *, timeout: float = 30.0) -> None:
        """Connects to `address`, by default NEXUSKV_SOCKET, the system's daemon or the user's own.

        `timeout` bounds every request, in seconds. Raises Disconnected, VersionMismatch, BadRequest.
        """
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}: it must be above 0 seconds")
        self._path = addresses.parse(address) if address else addresses.find()
        self._timeout = timeout
        self._lock = threading.Lock()
        self._closed = False
        self._session: Session | None = Session(self._path, timeout)
        _clients.add(self)

    @property
    def session(self) -> Session:
        """The live session, a new one if the old one ended. Raises Closed, Disconnected."""
        session = self._session
        if session is not None and session.alive:
            return session
        return self._renew()

    @property
    def tenant(self) -> str:
        """Whose pages this process sees, as the daemon took it from the socket's credentials."""
        return self.session.welcome.tenant

    @property
    def instance(self) -> str:
        """Name of the daemon."""
        return self.session.welcome.instance

    @property
    def boot_epoch(self) -> int:
        """A number that differs at every start of the daemon."""
        return self.session.welcome.boot_epoch

    def open(self, descriptor: Descriptor, *, model: str, salt: str = "") -> Cache:
        """The cache of one kind of state of one model.

        `model` names weights and revision, e.g. "meta-llama/Meta-Llama-3-8B@<revision>"; `salt` keeps uses apart that
        must not share pages. Raises DescriptorConflict when the id is registered with other content.
        """
        return Cache(self, descriptor, model, salt)

    def stats(self) -> m.Stats:
        """The daemon's figures: of all tenants for its operator, else of the own one."""
        session = self.session
        return session.call(m.GetStats(session.number()), m.Stats)

    def evict(
        self, descriptor_id: str | None = None, nbytes: int | None = None, *, everything: bool = False
    ) -> m.Evicted:
        """Evicts pages, leaves first: at least `nbytes`, or all that nobody holds.

        `everything` retires pinned pages too: nobody finds them any more, and they go with their last pin.
        Raises UnknownDescriptor.
        """
        session = self.session
        request = m.Evict(session.number(), descriptor_id or "", nbytes or 0, everything)
        return session.call(request, m.Evicted)

    def close(self) -> None:
        """Ends the session. Arrays from hits must not be used any more."""
        with self._lock:
            self._closed = True
            if self._session is not None:
                self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _renew(self) -> Session:
        with self._lock:
            if self._closed:
                raise Closed("this client is closed: connect anew")
            if self._session is None or not self._session.alive:
                self._session = Session(self._path, self._timeout)
            return self._session

    def forked(self) -> None:
        """In a child: lets go of the parent's session without ending it."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        if self._session is not None:
            self._session.forked = True
            self._session.close()
            self._session = None


def connect(address: str | None = None, *, timeout: float = 30.0) -> Client:
    """Connects to the daemon; see Client."""
    return Client(address, timeout=timeout)


def _after_fork() -> None:
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_after_fork)
