"""One connection to the daemon: requests and replies, deadlines, and the segments it handed out.

Owns the socket and the mappings. One request is under way at a time; threads take turns. Knows nothing of descriptors
beyond their layout, and never connects anew: a session that ended stays ended, its owner makes another.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec

from nexuskv import contract, errors
from nexuskv.client.mapped import Mapped, all_there
from nexuskv.errors import (
    Closed,
    DeadlineExceeded,
    DescriptorConflict,
    Disconnected,
    LocalError,
    NexusError,
    RemoteError,
    VersionMismatch,
)
from nexuskv.ipc import seqpacket
from nexuskv.native import LayoutError, Reader
from nexuskv.protocol import branches as b
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Notice, Reply, Request

R = TypeVar("R", bound=m.Message)
_ERRORS: dict[str, type[NexusError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, NexusError)
}
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
        self._path = path
        self._timeout = timeout
        self.shared = shared
        self.reader: Reader | None = None
        self._lock = threading.Lock()
        self._attaching = threading.Lock()
        self._numbers = itertools.count(1)
        self._receiver = seqpacket.Receiver()
        self._orphans: deque[Request] = deque()
        self._awaited: dict[int, m.Message | None] = {}
        self._forgotten: deque[int] = deque()
        self.released: deque[int] = deque()
        """Hits that ended. The daemon hears of them with the next request: a message for each would cost one more."""
        self._mapped = Mapped()
        self.readable, self.writable = self._mapped.readable, self._mapped.writable
        self._arenas: dict[str, tuple[contract.Descriptor, int]] = {}
        self.alive = True
        self.left = ""  # why nothing of this session must be used any more
        self._sock = seqpacket.connect(path, timeout)
        try:
            hello = m.Hello(self.number(), m.PROTOCOL_VERSION, f"nexuskv-python/{version('nexuskv')}")
            self.welcome = self.call(hello, m.Welcome)
        except BaseException:
            self.close()
            raise

    def wait_at_most(self, seconds: float) -> None:
        """Changes how long calls wait from now on."""
        self._timeout = seconds
        if self.alive:
            seqpacket.limit(self._sock, seconds)

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

    def find(self, descriptor: contract.Descriptor, keys: Sequence[bytes]) -> Iterator[m.Found]:
        """What the daemon knows of each key, in as many answers as messages were needed."""
        for at in range(0, len(keys), m.MAX_KEYS):
            request = m.Lookup(self.number(), self.arena(descriptor), list(keys[at : at + m.MAX_KEYS]))
            yield self.call(request, m.Found)

    def map_segments(self, descriptor: contract.Descriptor, segments: Collection[int]) -> None:
        """Maps those of `segments` that are not mapped for reading yet. Raises Disconnected, DeadlineExceeded."""
        arena = self.arena(descriptor)
        missing = sorted(set(segments) - self.readable[arena].keys())
        for at in range(0, len(missing), m.MAX_KEYS):
            self.call(m.Map(self.number(), missing[at : at + m.MAX_KEYS]), m.Done)

    def call(self, request: Request, expected: type[R]) -> R:
        """Sends a request and waits for its reply. Raises the error that the daemon answers, or Disconnected."""
        data = codec.encode(request)
        with self._lock:
            if not self.alive:
                raise Disconnected("this session ended: call again, which connects anew")
            reply: m.Message = self._exchange(request, data)
            if reply.id != request.id:
                reply = self._reply(request.id, reply)
        return reply if type(reply) is expected else _expected(reply, expected)

    def begin(self, request: Request) -> None:
        """Sends a request whose reply `finish` collects, or `forget` gives back. Raises Disconnected."""
        data = codec.encode(request)
        with self._lock:
            if not self.alive:
                raise Disconnected("this session ended: call again, which connects anew")
            self._awaited[request.id] = None
            try:
                self._ask(request, data)
            except NexusError:
                del self._awaited[request.id]
                raise

    def finish(self, number: int, expected: type[R]) -> R:
        """The reply to a request that was begun. Raises as `call` does; what comes after a deadline is given back."""
        with self._lock:
            reply = self._awaited.pop(number) or self._reply(number)
        return _expected(reply, expected)

    def forget(self, number: int) -> None:
        """Nobody will `finish` this request: what it grants is given back. Also from inside a destructor."""
        self._forgotten.append(number)

    def tell(self, request: Request) -> None:
        """Sends a request that wants no reply. Raises Disconnected."""
        try:
            self._sock.send(codec.encode(request))
        except OSError as error:
            raise self._lost(error) from error

    def take_released(self) -> list[int]:
        """Hits that ended, for the next `Pin` to tell: as many as it takes."""
        released = self.released
        return [released.popleft() for _ in range(min(len(released), m.MAX_KEYS))] if released else []

    def orphan(self, request: Request) -> None:
        """Leaves a request to be sent before the next one: for what can wait, also from inside `call` itself."""
        self._orphans.append(request)

    def check(self) -> None:
        """Raises Closed when what this session pinned or reserved must not be used any more."""
        if self.left:
            raise Closed(self.left)

    def leave(self, why: str) -> None:
        """Ends the session from this side: its hits and reservations raise Closed(`why`), its mappings go."""
        self.left = why
        self.close()
        self._mapped.clear()

    def close(self) -> None:
        """Ends the session. Pins of open hits hold until those are closed, and their mappings stay."""
        self.reader = None
        self._hang_up()

    def _hang_up(self) -> None:
        self.alive = False
        self._sock.close()

    def _clear(self, request: Request) -> None:
        """Sends what is left to be sent before `request`. Raises OSError."""
        while self._forgotten:
            if (reply := self._awaited.pop(self._forgotten.popleft(), None)) is not None:
                self._late(reply)
        while self._orphans:
            self._sock.send(codec.encode(self._orphans[0]))
            self._orphans.popleft()
        if self.released and type(request) is not m.Pin:
            told = self.take_released()
            try:
                self._sock.send(codec.encode(m.Release(0, told)))
            except OSError:
                self.released.extend(told)
                raise

    def _ask(self, request: Request, data: bytes) -> None:
        try:
            self._clear(request)
            self._sock.send(data)
        except BrokenPipeError:
            return  # the daemon hung up; what it said before that, perhaps why, is still to be read
        except OSError as error:
            raise self._lost(error) from error

    def _exchange(self, request: Request, data: bytes) -> Reply | Notice:
        """Sends a request; the next message."""
        try:
            if self._forgotten or self._orphans or self.released:
                with contextlib.suppress(BrokenPipeError):  # as above
                    self._clear(request)
            received = self._receiver.exchanged(self._sock, data)
        except OSError as error:
            raise self._lost(error) from error
        if received is None:
            if type(request) is m.Pin:
                self.released.extend(request.released)
            raise self._lost(BlockingIOError())
        return self._taken(*received)

    def _reply(self, number: int, message: m.Message | None = None) -> m.Message:
        """The reply to request `number`; `message` came first."""
        message = message or self._receive()
        while message.id != number:
            if message.id in self._awaited:
                self._awaited[message.id] = message
            elif not isinstance(message, m.Segments | m.Dropped):
                self._late(message)
            message = self._receive()
        return message

    def _receive(self) -> Reply | Notice:
        """The next message, its descriptors mapped."""
        try:
            data, descriptors = self._receiver.with_descriptors(self._sock)
        except OSError as error:
            raise self._lost(error) from error
        return self._taken(data, descriptors)

    def _taken(self, data: memoryview, descriptors: list[int]) -> Reply | Notice:
        """A message that came, and what it hands out mapped."""
        if data and not descriptors:
            message = _decode(data)
            if type(message) not in _HANDED_OUT:
                return message
        try:
            if not data:
                raise self._lost(None)
            message = _decode(data)
            if isinstance(message, m.Segments):
                self._map(message.segments, descriptors)
            elif isinstance(message, m.Attached):
                self._attach(descriptors)
            elif isinstance(message, m.Dropped):
                self._mapped.drop(message.segments)
            return message
        finally:
            if descriptors:
                seqpacket.close_all(descriptors)

    def _attach(self, descriptors: list[int]) -> None:
        """Reads the shared index from now on. A session gets it once, so one that cannot take it is of no more use."""
        try:
            all_there(descriptors, 3)
            self.reader = Reader(*descriptors)
        except LayoutError as error:
            self.close()
            raise VersionMismatch(
                f"the daemon's shared index cannot be read ({error}): install the same release on both sides"
            ) from error
        except OSError as error:
            self.close()
            raise LocalError(f"this process cannot map the daemon's shared index: {error}") from error
        except NexusError:
            self.close()
            raise

    def _map(self, segments: list[m.Segment], descriptors: list[int]) -> None:
        """Maps what was handed out. That comes once a session, so one that cannot take it is of no more use."""
        try:
            self._mapped.take(segments, descriptors)
        except OSError as error:
            self.close()
            raise LocalError(f"this process cannot map a segment of the daemon: {error}") from error
        except NexusError:
            self.close()
            raise

    def _late(self, message: m.Message) -> None:
        """A reply to a call that gave up waiting: what it grants is given back."""
        if isinstance(message, m.Pinned) and message.hit:
            self.released.append(message.hit)
        elif isinstance(message, m.Reserved | m.ReservedGroup | b.Appending) and message.reservation:
            self._orphans.append(m.Abort(0, message.reservation))
        elif isinstance(message, b.Branched):
            self._orphans.append(b.DropBranches(0, [message.row.branch]))
        elif isinstance(message, b.Forked):
            children = list(range(message.first, message.first + message.count))
            self._orphans.append(b.DropBranches(0, children))
        elif isinstance(message, m.Refused) and not message.id:
            raise _error(message)

    def _lost(self, error: OSError | None) -> NexusError:
        if isinstance(error, BlockingIOError):
            return DeadlineExceeded(
                f"no answer from {self._path} within {self._timeout} s: the daemon is stopped or overloaded; try again"
            )
        self._hang_up()
        return Disconnected(
            f"the daemon at {self._path} ended the session ({error or 'end of stream'}): the next call connects anew"
        )


def _expected(reply: m.Message, expected: type[R]) -> R:
    if type(reply) is expected:
        return reply
    if isinstance(reply, m.Refused):
        raise _error(reply)
    raise RemoteError(f"the daemon answered with {type(reply).__name__} instead of {expected.__name__}")


def _decode(data: memoryview) -> Reply | Notice:
    try:
        message: Reply | Notice = codec.decode_reply(data)
    except msgspec.DecodeError as error:
        raise RemoteError(
            f"the daemon sent what is no message of protocol {m.PROTOCOL_VERSION}: {error}"
        ) from error
    return message


def _error(refusal: m.Refused) -> NexusError:
    kind = _ERRORS.get(refusal.code, RemoteError)
    if kind is errors.ArenaFull:
        return errors.ArenaFull(refusal.message, refusal.numbers)
    if kind is errors.DescriptorError:
        field, _, text = refusal.message.partition(": ")
        return errors.DescriptorError(field, text)
    return kind(refusal.message)
