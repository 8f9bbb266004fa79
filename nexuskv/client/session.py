"""One connection to the daemon: requests and replies, deadlines, and the segments it handed out.

Owns the order of what is said, and the mappings. One request is under way at a time; threads take turns. Knows
nothing of descriptors beyond their layout, and never connects anew: a session that ended stays ended, its owner makes
another.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
from collections import deque
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from nexuskv import contract
from nexuskv.client.mapped import Mapped, attached
from nexuskv.client.replies import decode, error_of, expected_of, undoing_of
from nexuskv.client.wire import Wire
from nexuskv.errors import Closed, DeadlineExceeded, DescriptorConflict, NexusError
from nexuskv.ipc import seqpacket
from nexuskv.native import Reader
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Notice, Reply, Request

R = TypeVar("R", bound=m.Message)
_RELEASE = version("nexuskv")  # read once: it opens files, and a process may run out of descriptors
_HANDED_OUT = m.Segments, m.Attached, m.Dropped
"""Messages that change what this process has mapped."""


class Session:
    """A greeted connection, until it is not `alive` any more.

    `reader` reads the tenant's shared index, from the first `arena` on; it goes on when the connection ended. Its lock
    tells the daemon, also one that was started later, that this process may still write what it reserved. Therefore
    sessions that are not `shared` and look nothing up there have one too.
    """

    def __init__(self, path: Path, timeout: float, *, shared: bool) -> None:
        """Connects and says hello. Raises Disconnected, VersionMismatch."""
        self.shared = shared
        self.reader: Reader | None = None
        self._lock = threading.Lock()
        self._attaching = threading.Lock()
        self._numbers = itertools.count(1)
        self._orphans: deque[Request] = deque()
        self._awaited: dict[int, m.Message | None] = {}
        self._forgotten: deque[int] = deque()
        self._withdrawn: set[int] = set()  # whose replies grant nothing any more
        self.released: deque[int] = deque()
        """Hits that ended. The daemon hears of them with the next request: a message for each would cost one more."""
        self._mapped = Mapped()
        self.readable, self.writable = self._mapped.readable, self._mapped.writable
        self._arenas: dict[str, tuple[contract.Descriptor, int]] = {}
        self.left = ""  # why nothing of this session must be used any more
        self.wire = Wire(path, timeout)
        try:
            hello = m.Hello(self.number(), m.PROTOCOL_VERSION, f"nexuskv-python/{_RELEASE}")
            self.welcome = self.call(hello, m.Welcome)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the connection has not ended."""
        return self.wire.alive

    def wait_at_most(self, seconds: float) -> None:
        """Changes how long calls wait from now on."""
        self.wire.wait_at_most(seconds)

    def number(self) -> int:
        """A fresh request id."""
        return next(self._numbers)

    def arena(self, descriptor: contract.Descriptor) -> int:
        """The arena of `descriptor`, registered on first use. Raises DescriptorConflict."""
        registered, number = self._arenas.get(descriptor.descriptor_id, (None, 0))
        if registered is descriptor or registered == descriptor:
            return number
        with self._attaching:
            if self.reader is None:
                self.call(m.Attach(self.number()), m.Attached)
        request = m.Register(self.number(), contract.encode(descriptor))
        number = self.call(request, m.Registered).arena
        self._mapped.layouts[number] = descriptor.page_layout
        self._arenas[descriptor.descriptor_id] = descriptor, number
        return number

    def follow(self, old: Session) -> None:
        """Registers and maps what an ended session had, to take its place. Raises Disconnected, DeadlineExceeded."""
        for descriptor, number in list(old._arenas.values()):
            # What conflicts with a descriptor that came first is told to whoever uses it.
            with contextlib.suppress(DescriptorConflict):
                self.arena(descriptor)
                self.map_segments(descriptor, old.readable[number].keys())

    def map_segments(self, descriptor: contract.Descriptor, segments: Collection[int]) -> None:
        """Maps those of `segments` that are not mapped for reading yet. Raises Disconnected, DeadlineExceeded.

        After a deadline that passed it does not wait again before the daemon gives a sign: hits go on without.
        """
        arena = self.arena(descriptor)
        missing = sorted(set(segments) - self.readable[arena].keys())
        if missing:
            self.wire.check_silence()
        for at in range(0, len(missing), m.MAX_KEYS):
            self.call(m.Map(self.number(), missing[at : at + m.MAX_KEYS]), m.Done)

    def call(self, request: Request, expected: type[R]) -> R:
        """Sends a request and waits for its reply. Raises the error that the daemon answers, or Disconnected."""
        data = codec.encode(request)
        with self._lock:
            self.wire.check()
            try:
                reply: m.Message = self._exchange(request, data)
                if reply.id != request.id:
                    reply = self._reply(request.id, reply)
            except NexusError:
                raise
            except BaseException:  # a signal's handler: nobody knows what was sent, or came and was not taken
                self.hang_up()
                raise
        return reply if type(reply) is expected else expected_of(reply, expected)

    def confirm(self, request: Request, expected: type[R]) -> R:
        """As `call`; but when a deadline passed after it was sent, `finish` may go on waiting for its reply."""
        self._awaited[request.id] = None
        keep = False
        try:
            return self.call(request, expected)
        except DeadlineExceeded as error:
            keep = error.sent
            raise
        finally:
            if not keep:
                self._awaited.pop(request.id, None)

    def begin(self, request: Request) -> None:
        """Sends a request whose reply `finish` collects, or `forget` gives back. Raises Disconnected."""
        data = codec.encode(request)
        with self._lock:
            self.wire.check()
            self._awaited[request.id] = None
            try:
                self._ask(request, data)
            except NexusError:
                del self._awaited[request.id]
                raise
            except BaseException:
                self.hang_up()
                raise

    def finish(self, number: int, expected: type[R]) -> R:
        """The reply to a request that was begun. Raises as `call` does; after a deadline, `finish` or `forget` it."""
        with self._lock:
            try:
                reply = self._awaited.get(number) or self._reply(number)
                self._awaited.pop(number, None)
            except NexusError:
                raise
            except BaseException:
                self.hang_up()
                raise
        return expected_of(reply, expected)

    def forget(self, number: int) -> None:
        """Nobody will `finish` this reserve: what it grants is given back, by the daemon if it is not there yet.

        Never waits: also for destructors.
        """
        self._forgotten.append(number)
        if self._lock.acquire(blocking=False):  # else a call is under way, perhaps below this very destructor
            try:
                with contextlib.suppress(NexusError):
                    self._take_what_came(number)
                    self._give_back_forgotten()
            finally:
                self._lock.release()

    def tell(self, request: Request) -> None:
        """Sends a request that wants no reply. Raises Disconnected."""
        self.wire.tell(codec.encode(request))

    def take_released(self) -> list[int]:
        """Hits that ended, for the next `Pin` to tell: as many as it takes."""
        told: list[int] = []
        try:
            while self.released and len(told) < m.MAX_KEYS:
                told.append(self.released.popleft())
        except IndexError:  # another thread took the last one
            pass
        return told

    def orphan(self, request: Request) -> None:
        """Sends a request that wants no reply if there is room, else before the next one. Never waits."""
        if not self.wire.hint(codec.encode(request)):
            self._orphans.append(request)

    def check(self) -> None:
        """Raises Closed when what this session pinned or reserved must not be used any more."""
        if self.left:
            raise Closed(self.left)

    def leave(self, why: str, *, forked: bool = False) -> None:
        """Ends the session from this side: its hits and reservations raise Closed(`why`), its mappings go.

        In a `forked` child the connection is the parent's, which goes on with it.
        """
        self.left = why
        self.reader = None
        if forked:
            self.wire.let_go()
        else:
            self.wire.hang_up()
        self._mapped.clear()

    def close(self) -> None:
        """Ends the session. Pins of open hits hold until those are closed, and their mappings stay."""
        self.reader = None
        self.hang_up()

    def hang_up(self) -> None:
        """Ends the connection alone."""
        self.wire.hang_up()

    def _take_what_came(self, number: int) -> None:
        """Receives without waiting, until the reply to `number` is there."""
        while self.alive and number in self._awaited and self._awaited[number] is None:
            if not self.wire.polled(select.POLLIN):
                return
            self._sort(self._receive())

    def _give_back_forgotten(self) -> None:
        while self._forgotten:
            number = self._forgotten[0]
            if (reply := self._awaited.get(number)) is not None:
                self._late(reply)
            elif number in self._awaited and self.wire.hint(codec.encode(m.Withdraw(0, number))):
                self._withdrawn.add(number)
            self._awaited.pop(number, None)
            self._forgotten.popleft()

    def _clear(self, request: Request) -> None:
        """Sends what is left to be sent before `request`. Raises OSError."""
        self._give_back_forgotten()
        while self._orphans:
            self.wire.sock.send(codec.encode(self._orphans[0]))
            self._orphans.popleft()
        if self.released and type(request) is not m.Pin:
            told = self.take_released()
            try:
                self.wire.sock.send(codec.encode(m.Release(0, told)))
            except OSError:
                self.released.extend(told)
                raise

    def _ask(self, request: Request, data: bytes) -> None:
        try:
            self._clear(request)
            self.wire.sock.send(data)
        except BrokenPipeError:
            return  # the daemon hung up; what it said before that, perhaps why, is still to be read
        except OSError as error:
            raise self.wire.lost(error, sent=False) from error

    def _exchange(self, request: Request, data: bytes) -> Reply | Notice:
        """Sends a request; the next message."""
        if self._forgotten or self._orphans or self.released:
            try:
                self._clear(request)
            except BrokenPipeError:
                pass  # as above
            except OSError as error:
                raise self.wire.lost(error, sent=False) from error
        try:
            received = self.wire.exchanged(data)
        except OSError as error:
            raise self.wire.lost(error) from error
        if received is None:
            if type(request) is m.Pin:
                self.released.extend(request.released)
            raise self.wire.late(sent=False)
        return self._taken(*received)

    def _reply(self, number: int, message: m.Message | None = None) -> m.Message:
        """The reply to request `number`; `message` came first."""
        message = message or self._receive()
        while message.id != number:
            self._sort(message)
            message = self._receive()
        return message

    def _sort(self, message: m.Message) -> None:
        """A message that the caller does not wait for."""
        if message.id in self._awaited:
            self._awaited[message.id] = message
        elif not isinstance(message, m.Segments | m.Dropped):
            self._late(message)

    def _receive(self) -> Reply | Notice:
        """The next message, its descriptors mapped."""
        try:
            data, descriptors = self.wire.received()
        except OSError as error:
            raise self.wire.lost(error) from error
        return self._taken(data, descriptors)

    def _taken(self, data: memoryview, descriptors: list[int]) -> Reply | Notice:
        """A message that came, and what it hands out mapped."""
        if data and not descriptors:
            message = decode(data)
            if type(message) not in _HANDED_OUT:
                return message
        if not data:
            seqpacket.close_all(descriptors)
            raise self.wire.lost(None)
        try:
            message = decode(data)
            if isinstance(message, m.Segments):
                self._mapped.take(message.segments, descriptors)
            elif isinstance(message, m.Attached):
                self.reader = attached(descriptors)
            elif isinstance(message, m.Dropped):
                self._mapped.drop(message.segments)
            return message
        except NexusError:
            self.close()  # what is handed out comes once: a session that cannot take it is of no more use
            raise
        finally:
            seqpacket.close_all(descriptors)

    def _late(self, message: m.Message) -> None:
        """A reply to a call that gave up waiting: what it grants is given back."""
        if message.id in self._withdrawn:
            self._withdrawn.remove(message.id)
        elif isinstance(message, m.Pinned) and message.hit:
            self.released.append(message.hit)
        elif (undoing := undoing_of(message)) is not None:
            self.orphan(undoing)
        elif isinstance(message, m.Refused) and not message.id:
            raise error_of(message)
