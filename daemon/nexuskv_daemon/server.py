"""The event loop: one thread that waits for clients, workers and signals, and performs what the engine answers.

Owns the connections and the order of things. Decides nothing: what a message means is the engine's affair.
"""

import itertools
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nexuskv.errors import ArenaFull
from nexuskv.ipc import seqpacket
from nexuskv.protocol import codec
from nexuskv.protocol.language import Request
from nexuskv.protocol.messages import MAX_MESSAGE_BYTES, Attached, Commit, Message, Segments
from nexuskv_daemon.arenas import SegmentObjects
from nexuskv_daemon.connection import Connection
from nexuskv_daemon.core.effects import Abroad, Close, DropSegment, Effect, MakeSegment, Send, Stop
from nexuskv_daemon.core.engine import Engine
from nexuskv_daemon.core.memory import SegmentRecord
from nexuskv_daemon.listener import Listener
from nexuskv_daemon.outside import Alone, Deliver, Outside
from nexuskv_daemon.publications import Publications
from nexuskv_daemon.worker import Worker

log = logging.getLogger(__name__)
ACCEPTS_AT_ONCE = 64
EVENTS_AT_ONCE = 64
COMMITS_AT_ONCE = 64
TURN_SECONDS = 0.0005
"""How long one client is served before others are looked at; what takes longer by itself is one turn."""
CARRIERS = Attached, Segments
"""Messages that come with descriptors."""
FIRST_SWEEP, LAST_SWEEP = 0.005, 1.0
"""Seconds between two looks whether clients that lost their connection are gone: longer and longer while some live."""


@dataclass(frozen=True, slots=True)
class Shells:
    """What the server works with."""

    objects: SegmentObjects
    publications: Publications
    worker: Worker
    listener: Listener


class Server:
    """Serves until `stop`. `operators` are the uids that see and evict every tenant's pages, `tenant` names a uid's.

    `keep` is set when a client asked to stop and leave everything to the next daemon.
    """

    def __init__(
        self,
        engine: Engine,
        shells: Shells,
        operators: frozenset[int],
        tenant: Callable[[int], str],
        first_session: int = 1,
    ) -> None:
        self.keep = False
        self._engine = engine
        self._objects = shells.objects
        self._publications = shells.publications
        self._worker = shells.worker
        self._listener = shells.listener
        self._operators = operators
        self._waiting = True  # until a sweep finds nothing: an earlier daemon may have left something
        self._tenant = tenant
        self._next_sweep = 0.0
        self._pause = FIRST_SWEEP
        self._receiver = seqpacket.Receiver()
        self._connections: dict[int, Connection] = {}
        self._sessions: dict[int, Connection] = {}
        self._numbers = itertools.count(first_session)
        self._inside: dict[int, Deliver] = {}
        self._outside: Outside = Alone(self.reply)
        self._running = True
        self._epoll = select.epoll()
        self._others: dict[int, Callable[[], None]] = {}
        self.watch(shells.listener.sock.fileno(), self._accept)
        self.watch(shells.worker.ready, self._collect)

    def watch(self, descriptor: int, action: Callable[[], None]) -> None:
        """Calls `action` whenever `descriptor` is readable."""
        self._others[descriptor] = action
        self._epoll.register(descriptor, select.EPOLLIN)

    def go_outside(self, outside: Outside) -> None:
        """Has `outside` perform what other hosts are needed for."""
        self._outside = outside

    def tell_of_pages(self, changed: Callable[[list[bytes], bool], None]) -> None:
        """Has `changed` hear of keys that became readable (True) or went (False)."""
        self._publications.tell(lambda entries, there: changed([entry.key for entry in entries], there))

    # -- sessions inside this process: they ask by struct, and are told what clients are told -----------------------

    def new_number(self) -> int:
        """A number for `join`; may be called in any thread."""
        return next(self._numbers)

    def join(self, number: int, tenant: str, deliver: Deliver) -> None:
        """Begins a session; it says hello like any other. `deliver` is called in the loop."""
        self._inside[number] = deliver
        self._engine.connect(number, tenant, operator=False)

    def ask(self, number: int, request: Message) -> None:
        """A request of a session inside."""
        self._perform(self._engine.handle(number, request, time.monotonic()))

    def leave(self, number: int) -> None:
        """Ends a session inside: its pins go, and what it was writing."""
        del self._inside[number]
        self._engine.disconnect(number)

    def reply(self, number: int, message: Message) -> None:
        """What came of an `Abroad`; its session may be gone by now."""
        if number in self._sessions:
            self._send(number, message)

    def run(self) -> None:
        """Serves until `stop` is called."""
        poll, connections = self._epoll.poll, self._connections
        while self._running:
            for descriptor, events in poll(self._pause if self._waiting else None, EVENTS_AT_ONCE):
                connection = connections.get(descriptor)
                if connection is not None:
                    self._serve(connection, events)
                elif descriptor in self._others:
                    self._others[descriptor]()
            if self._waiting:
                self._sweep()

    def _sweep(self) -> None:
        now = time.monotonic()
        if now >= self._next_sweep:
            self._pause = min(2 * self._pause, LAST_SWEEP)
            self._next_sweep = now + self._pause
            self._engine.abandoned(self._publications.sweep())
            self._waiting = self._publications.waiting

    def stop(self) -> None:
        """Makes `run` return after what it is doing."""
        self._running = False

    def close(self) -> None:
        """Ends all sessions."""
        for connection in list(self._connections.values()):
            self._end(connection)
        self._epoll.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            sock = self._listener.accept()
            if sock is None:
                return
            self._welcome(sock)

    def _welcome(self, sock: socket.socket) -> None:
        who = seqpacket.credentials(sock)
        connection = Connection(sock, next(self._numbers))
        self._connections[sock.fileno()] = self._sessions[connection.number] = connection
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        tenant = self._tenant(who.uid)
        self._engine.connect(connection.number, tenant, operator=who.uid in self._operators)
        log.debug("session %d: uid %d, pid %d", connection.number, who.uid, who.pid)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                self._resume(connection)
            else:
                self._receive_some(connection)
        except OSError as error:
            log.debug("session %d: %s", connection.number, error)
            self._end(connection)

    def _receive_some(self, connection: Connection) -> None:
        """What a client has to say, for a short turn, without going back to the kernel to ask who is ready.

        Commits that want no reply come in runs. And a client on this CPU runs between its reply and the next look, so
        its next request is often there by then.
        """
        commits: list[Commit] = []
        end = time.monotonic() + TURN_SECONDS
        going = True
        while going:
            data = connection.receive(self._receiver)
            request = _decoded(data) if data else None
            if type(request) is Commit and not request.id:
                commits.append(request)
                if len(commits) < COMMITS_AT_ONCE:
                    continue
                request = None
            if commits and not self._commit(connection, commits):
                return
            if request is not None:
                going = self._serve_one(connection, request) and time.monotonic() < end
                os.sched_yield()  # nothing is left to do here, and a client on this CPU can go on
            elif data is None:  # nothing more, or an event that came for another with the same descriptor
                return
            elif not data:
                self._end(connection)
                return
            else:
                going = time.monotonic() < end

    def _commit(self, connection: Connection, commits: list[Commit]) -> bool:
        """Performs a run of commits. Returns whether the connection goes on."""
        self._perform(self._engine.commit(connection.number, commits, time.monotonic()))
        commits.clear()
        return connection.number in self._sessions and not connection.closing

    def _serve_one(self, connection: Connection, request: Request | codec.BadMessage) -> bool:
        """Performs a request, or refuses what is none. Returns whether more may be read at once."""
        number = connection.number
        if isinstance(request, codec.BadMessage):
            log.warning("session %d: %s", number, request)
            self._perform(self._engine.reject(number, request))
            return False
        self._perform(self._engine.handle(number, request, time.monotonic()))
        return not (connection.blocked or connection.closing) and number in self._sessions

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:
                self._send(effect.session, effect.message)
            elif type(effect) is MakeSegment:
                self._make(effect.record)
            elif type(effect) is DropSegment:
                self._outside.dropped(effect.record.number)
                self._objects.drop(effect.record.number)
            elif type(effect) is Abroad:
                self._outside.perform(effect)
            elif type(effect) is Close:
                self._close(effect.session)
            elif type(effect) is Stop:
                self.keep = True
                self.stop()

    def _make(self, record: SegmentRecord) -> None:
        try:
            self._publications.planned(record.number)
        except ArenaFull as error:
            self._perform(self._engine.segment_failed(record.number, str(error), time.monotonic()))
        else:
            self._worker.make(record.number, record.nbytes)

    def _send(self, number: int, message: Message) -> None:
        if number in self._inside:
            self._inside[number](message, self._writable(message))
            return
        connection = self._sessions.get(number)
        if connection is None:  # an effect before this one found the client gone
            return
        descriptors = self._descriptors(message) if type(message) in CARRIERS else ()
        try:
            sent = connection.send(codec.encode(message), descriptors)
        except OSError as error:
            log.debug("session %d: %s", number, error)
            self._end(connection)
            return
        if type(message) is Attached and not connection.mute:
            self._publications.handed_over(number)
        if not sent:
            self._epoll.modify(connection.sock.fileno(), select.EPOLLOUT)

    def _writable(self, message: Message) -> list[int]:
        """Who is inside this process maps for writing what it only reads: a transport wants it so."""
        segments = message.segments if type(message) is Segments else ()
        return [self._objects.descriptor(each.segment, writable=True) for each in segments]

    def _descriptors(self, message: Message) -> Sequence[int]:
        if type(message) is Attached:
            return self._publications.descriptors(message.session)
        assert type(message) is Segments
        return [self._objects.descriptor(s.segment, writable=s.writable) for s in message.segments]

    def _resume(self, connection: Connection) -> None:
        connection.flush()
        if connection.blocked:
            return
        if connection.closing:
            self._end(connection)
        else:
            self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)

    def _close(self, number: int) -> None:
        connection = self._sessions.get(number)
        if connection is None:
            return
        connection.closing = True
        if not connection.blocked:
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        if self._sessions.pop(connection.number, None) is None:
            return
        del self._connections[connection.sock.fileno()]
        self._epoll.unregister(connection.sock.fileno())
        connection.close()
        self._engine.disconnect(connection.number)
        self._waiting = True
        self._pause = FIRST_SWEEP
        self._next_sweep = 0.0

    def _collect(self) -> None:
        for number, made in self._worker.outcomes():
            now = time.monotonic()
            if isinstance(made, ArenaFull):
                log.warning("%s", made)
                self._perform(self._engine.segment_failed(number, str(made), now))
            else:
                self._objects.adopt(number, made)
                self._worker.warm(made)
                self._perform(self._engine.segment_made(number, now))


def _decoded(data: memoryview) -> Request | codec.BadMessage:
    try:
        if len(data) > MAX_MESSAGE_BYTES:
            raise codec.oversized(len(data))
        return codec.decode_request(data)
    except codec.BadMessage as error:
        return error
