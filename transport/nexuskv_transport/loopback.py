"""Transport within one process: a thread copies from one buffer into the other.

Owns the names under which its listeners are found. It is for tests, for engines that embed a daemon, and as the
shortest example of what a transport is: addresses are "loopback:NAME".
"""

import os
import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from queue import SimpleQueue

import numpy as np

from nexuskv.errors import LocalError, StartupError
from nexuskv_transport.base import (
    Admit,
    Connection,
    Done,
    Identity,
    Limits,
    Listener,
    Outcome,
    Pull,
    Region,
    Security,
    ServerEnd,
    Transport,
)
from nexuskv_transport.ledger import Ledger, stretches
from nexuskv_transport.regions import Refusal, Regions, Stretch
from nexuskv_transport.watch import NEVER, Watch

SCHEME = "loopback:"
_listeners: dict[str, "LoopbackListener"] = {}


class LoopbackConnection(Connection):
    """Queues its pulls for the thread of the end that accepts it."""

    def __init__(self, address: str, limits: Limits, watch: Watch) -> None:
        self.ended: str | None = None
        self.asked: SimpleQueue[tuple[Pull, Stretch] | None] = SimpleQueue()
        self.writing = threading.Lock()  # held while somebody writes into our extents
        self.ledger = Ledger(limits)
        self._watch = watch
        watch.add(self)
        listener = _listeners.get(address)
        if listener is None:
            self.end(f"nobody listens on {address}")
        else:
            listener.arrive(self)

    @property
    def received(self) -> int:
        return self.ledger.received

    def pull(self, pulls: Sequence[Pull], deadline: float) -> int:
        wanted = stretches(pulls)
        taken = self.ledger.take(pulls, deadline)
        for each in zip(pulls[:taken], wanted, strict=False):
            self.asked.put(each)
        self._watch.look_by(deadline)
        if self.ended is not None:
            self.ledger.finish(self.ledger.running(), Outcome.CLOSED)
        return taken

    def fileno(self) -> int:
        return self.ledger.ready

    def completed(self) -> list[Done]:
        return self.ledger.completed()

    def close(self) -> None:
        self.end("closed here")
        self.ledger.close()

    def end(self, sentence: str, ids: Iterable[int] = (), outcome: Outcome = Outcome.CLOSED) -> None:
        """Ends everything, `ids` with `outcome`; returns when nobody writes into our extents any more."""
        with self.writing:
            if self.ended is None:
                self.ended = sentence
        self._watch.remove(self)
        self.asked.put(None)
        self.ledger.finish(ids, outcome)
        self.ledger.finish(self.ledger.running(), Outcome.CLOSED)
        self.ledger.tell()

    def check(self, now: float) -> float:
        """Ends the connection when a pull is overdue."""
        if late := self.ledger.overdue(now):
            self.end("a pull was not served by its deadline", late, Outcome.DEADLINE)
            return NEVER
        return self.ledger.next_deadline()


class LoopbackEnd(ServerEnd):
    """Copies what its connection asks for, in a thread of its own."""

    def __init__(self, connection: LoopbackConnection, regions: Regions, tenants: Collection[str]) -> None:
        self.ended: str | None = None
        self.sent = 0
        self._connection = connection
        self._regions = regions
        self._tenants = tenants
        self._thread = threading.Thread(target=self._serve, name="loopback-serve", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Nothing to do: a copy that is under way ends soon, and the next one finds the region gone."""

    def close(self) -> None:
        self._end("closed by its listener")
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        while (asked := self._connection.asked.get()) is not None:
            try:
                self._copy(*asked)
            except Refusal as refusal:
                self._end(f"turned away: {refusal}", [asked[0].id], Outcome.REFUSED)
        self._end("closed by its peer")

    def _copy(self, pull: Pull, wanted: Stretch) -> None:
        connection = self._connection
        with self._regions.lend(self, [wanted], self._tenants) as (source,), connection.writing:
            if connection.ended is not None:
                return
            np.copyto(np.frombuffer(pull.into, np.uint8), np.frombuffer(source, np.uint8))
        self.sent += pull.into.nbytes
        connection.ledger.finish([pull.id], Outcome.OK)

    def _end(self, sentence: str, ids: Iterable[int] = (), outcome: Outcome = Outcome.CLOSED) -> None:
        self.ended = self.ended or sentence
        self._connection.end(sentence, ids, outcome)


class LoopbackListener(Listener):
    """Serves under its name until it is closed."""

    def __init__(self, address: str, admit: Admit, regions: Regions) -> None:
        if address in _listeners:
            raise StartupError(f"somebody listens on {address} already: choose another name")
        self.address = address
        self._admit = admit
        self._regions = regions
        self._newcomers: deque[LoopbackConnection] = deque()
        self._ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._ends: list[LoopbackEnd] = []
        _listeners[address] = self

    def arrive(self, connection: LoopbackConnection) -> None:
        """Lets a connection wait for `accept`."""
        self._newcomers.append(connection)
        os.eventfd_write(self._ready, 1)

    def fileno(self) -> int:
        return self._ready

    def accept(self) -> ServerEnd | None:
        try:
            os.eventfd_read(self._ready)
        except BlockingIOError:
            return None
        connection = self._newcomers.popleft()
        tenants = self._admit(Identity(self.address, frozenset()))
        if not tenants:
            connection.end(f"{self.address} does not admit it")
            return None
        end = LoopbackEnd(connection, self._regions, tenants)
        self._ends = [each for each in self._ends if each.ended is None] + [end]
        return end

    def close(self) -> None:
        if _listeners.get(self.address) is not self:
            return
        del _listeners[self.address]
        os.close(self._ready)
        for connection in self._newcomers:
            connection.end(f"{self.address} was closed")
        for end in self._ends:
            end.close()


class LoopbackTransport(Transport):
    """Regions and connections of one pretended host."""

    def __init__(self, address: str, security: Security) -> None:
        self._regions = Regions()
        self._watch = Watch("loopback-watch")
        self._listeners: list[LoopbackListener] = []
        self._connections: list[LoopbackConnection] = []

    def expose(self, number: int, buffer: memoryview, *, fd: int | None = None, tenant: str) -> Region:
        return self._regions.expose(number, buffer, tenant)

    def withdraw(self, number: int) -> None:
        self._regions.withdraw(number)

    def listen(self, address: str, admit: Admit) -> Listener:
        listener = LoopbackListener(_named(address), admit, self._regions)
        self._listeners.append(listener)
        return listener

    def connect(self, address: str, limits: Limits = Limits()) -> Connection:
        connection = LoopbackConnection(_named(address), limits, self._watch)
        self._connections = [each for each in self._connections if not each.ledger.closed] + [connection]
        return connection

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in self._connections:
            connection.close()
        self._regions.withdraw_all()
        self._watch.close()


def _named(address: str) -> str:
    if not address.startswith(SCHEME) or address == SCHEME:
        raise LocalError(f"{address!r} is no loopback address: write loopback:NAME")
    return address
