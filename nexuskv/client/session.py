"""One connection to the daemon: requests and replies, deadlines, and the segments it handed out.

Owns the socket and the mappings. One request is under way at a time; threads take turns. Knows nothing of descriptors
beyond their layout, and never connects anew: a session that ended stays ended, its owner makes another.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec

from nexuskv import contract, errors
from nexuskv.errors import Closed, DeadlineExceeded, Disconnected, NexusError, RemoteError
from nexuskv.ipc import seqpacket
from nexuskv.ipc.mapping import MappedSegment
from nexuskv.native import Reader
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m

R = TypeVar("R", bound=m.Message)
_ERRORS: dict[str, type[NexusError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, NexusError)
}
SLOT_BITS = 32
SLOT_MASK = (1 << SLOT_BITS) - 1
"""Of a wire handle: segment in the high half, slot in the low one (`protocol.messages`)."""
_TIMEVAL = struct.Struct("ll")


class Session:
    """A greeted connection. `forked` is set in a child that inherited it and must not use it.

    `reader` reads the tenant's shared index, from the first `arena` on; it goes on when the connection ended.
    """

    def __init__(self, path: Path, timeout: float, *, shared: bool) -> None:
        """Connects and says hello; without `shared` there is no reader. Raises Disconnected, VersionMismatch."""
        self._path = path
        self._timeout = timeout
        self._shared = shared
        self.reader: Reader | None = None
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._receiver = seqpacket.Receiver()
        self._orphans: deque[m.Request] = deque()
        self._by_number: dict[int, contract.Descriptor] = {}
        self._arenas: dict[str, tuple[contract.Descriptor, int]] = {}
        self.readable: dict[int, MappedSegment] = {}
        self.writable: dict[int, MappedSegment] = {}
        self.alive = True
        self.forked = False
        self._sock = _connect(path, timeout)
        try:
            hello = m.Hello(self.number(), m.PROTOCOL_VERSION, f"nexuskv-python/{version('nexuskv')}")
            self.welcome = self.call(hello, m.Welcome)
        except BaseException:
            self.close()
            raise

    def number(self) -> int:
        """A fresh request id."""
        return next(self._numbers)

    def arena(self, descriptor: contract.Descriptor) -> int:
        """The arena of `descriptor`, registered on first use. Raises DescriptorConflict."""
        registered, number = self._arenas.get(descriptor.descriptor_id, (None, 0))
        if registered is descriptor or registered == descriptor:
            return number
        request = m.Register(self.number(), contract.encode(descriptor))
        number = self.call(request, m.Registered).arena
        self._by_number[number] = descriptor
        self._arenas[descriptor.descriptor_id] = descriptor, number
        return number

    def find(self, descriptor: contract.Descriptor, keys: Sequence[bytes]) -> Iterator[m.Found]:
        """What the daemon knows of each key, in as many answers as messages were needed."""
        for at in range(0, len(keys), m.MAX_KEYS):
            request = m.Lookup(self.number(), self.arena(descriptor), list(keys[at : at + m.MAX_KEYS]))
            yield self.call(request, m.Found)

    def map_segments(self, descriptor: contract.Descriptor, segments: Collection[int]) -> None:
        """Maps those of `segments` that are not mapped for reading yet. Raises Disconnected, DeadlineExceeded."""
        missing = sorted(set(segments) - self.readable.keys())
        if missing:
            self.call(m.Map(self.number(), self.arena(descriptor), missing), m.Done)

    def call(self, request: m.Request, expected: type[R]) -> R:
        """Sends a request and waits for its reply. Raises the error that the daemon answers, or Disconnected."""
        data = codec.encode(request)
        with self._lock:
            if not self.alive:
                raise Disconnected("this session ended: call again, which connects anew")
            if self._orphans:
                self._send_orphans()
            self._send(data)
            reply = self._reply(request.id)
        if type(reply) is expected:
            return reply
        if isinstance(reply, m.Refused):
            raise _error(reply)
        raise RemoteError(f"the daemon answered {type(request).__name__} with {type(reply).__name__}")

    def tell(self, request: m.Request) -> None:
        """Sends a request that wants no reply. Raises Disconnected."""
        self._send(codec.encode(request))

    def orphan(self, request: m.Request) -> None:
        """Leaves a request to be sent before the next one: for destructors, which may run inside `call` itself."""
        self._orphans.append(request)

    def check(self) -> None:
        """Raises Closed in a forked child."""
        if self.forked:
            raise Closed(
                "opened before fork(): its pins belong to the parent; match or reserve again in the child"
            )

    def close(self) -> None:
        """Ends the session. Pins of open hits hold until those are closed; mappings as long as arrays on them live."""
        self.reader = None
        self._hang_up()

    def _hang_up(self) -> None:
        self.alive = False
        self._sock.close()

    def _send(self, data: bytes) -> None:
        try:
            self._sock.send(data)
        except OSError as error:
            raise self._lost(error) from error

    def _send_orphans(self) -> None:
        while self._orphans:
            self._send(codec.encode(self._orphans.popleft()))

    def _reply(self, number: int) -> m.Message:
        while True:
            message = self._receive()
            if isinstance(message, m.Attach | m.Segments | m.Dropped):
                continue
            if message.id == number:
                return message
            self._late(message)

    def _receive(self) -> m.Reply | m.Notice:
        """The next message, its descriptors mapped."""
        try:
            data, descriptors = self._receiver.with_descriptors(self._sock)
        except OSError as error:
            raise self._lost(error) from error
        try:
            if not data:
                raise self._lost(None)
            message = _decode(data)
            if isinstance(message, m.Segments) and len(message.segments) == len(descriptors):
                self._map(message.segments, descriptors)
            elif isinstance(message, m.Attach) and self._shared and len(descriptors) == 3:
                self.reader = Reader(*descriptors)
            elif isinstance(message, m.Dropped):
                self._unmap(message.segments)
            return message
        finally:
            seqpacket.close_all(descriptors)

    def _map(self, segments: list[m.Segment], descriptors: list[int]) -> None:
        for segment in segments:
            mapped = MappedSegment(
                descriptors.pop(0), self._by_number[segment.arena], segment.slots, segment.slot_bytes,
                writable=segment.writable,
            )  # fmt: skip
            (self.writable if segment.writable else self.readable)[segment.segment] = mapped

    def _unmap(self, segments: list[int]) -> None:
        for number in segments:
            self.readable.pop(number, None)
            self.writable.pop(number, None)

    def _late(self, message: m.Message) -> None:
        """A reply to a call that gave up waiting: what it grants is given back."""
        if isinstance(message, m.Pinned) and message.hit:
            self._orphans.append(m.Release(0, [message.hit]))
        elif isinstance(message, m.Reserved) and message.reservation:
            self._orphans.append(m.Abort(0, message.reservation))
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


def _connect(path: Path, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        # Kernel timeouts: Python's own would add a poll() to every receive.
        limit = _TIMEVAL.pack(int(timeout), int(timeout % 1 * 1_000_000))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, seqpacket.SEND_BUFFER)
        sock.connect(os.fspath(path))
    except OSError as error:
        sock.close()
        raise Disconnected(
            f"no daemon at {path} ({error.strerror}): start nexuskvd, or say where it listens with "
            "connect('unix:/path') or NEXUSKV_SOCKET"
        ) from error
    return sock


def _decode(data: memoryview) -> m.Reply | m.Notice:
    try:
        message: m.Reply | m.Notice = codec.decode_reply(data)
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
