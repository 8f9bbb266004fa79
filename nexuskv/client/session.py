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
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec

from nexuskv import contract, errors
from nexuskv.errors import Closed, DeadlineExceeded, Disconnected, LocalError, NexusError, RemoteError
from nexuskv.ipc import seqpacket
from nexuskv.ipc.mapping import MappedSegment
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m

R = TypeVar("R", bound=m.Message)
_ERRORS: dict[str, type[NexusError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, NexusError)
}
_TIMEVAL = struct.Struct("ll")


class Session:
    """A greeted connection, until it is not `alive` any more."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Connects and says hello. Raises Disconnected, VersionMismatch, DeadlineExceeded."""
        self._path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._receiver = seqpacket.Receiver()
        self._orphans: deque[m.Request] = deque()
        self._layouts: dict[int, contract.PageLayout] = {}
        self._arenas: dict[str, tuple[contract.Descriptor, int]] = {}
        self.readable: dict[int, MappedSegment] = {}
        self.writable: dict[int, MappedSegment] = {}
        self.alive = True
        self._left = ""
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
        self._layouts[number] = descriptor.page_layout
        self._arenas[descriptor.descriptor_id] = descriptor, number
        return number

    def call(self, request: m.Request, expected: type[R]) -> R:
        """Sends a request and waits for its reply. Raises the error that the daemon answers, or Disconnected."""
        data = codec.encode(request)
        with self._lock:
            if not self.alive:
                raise Disconnected("this session ended: call again, which connects anew")
            self._ask(data)
            reply = self._reply(request.id)
        if type(reply) is expected:
            return reply
        if isinstance(reply, m.Refused):
            raise _error(reply)
        raise RemoteError(f"the daemon answered {type(request).__name__} with {type(reply).__name__}")

    def tell(self, request: m.Request) -> None:
        """Sends a request that wants no reply. Raises Disconnected."""
        try:
            self._sock.send(codec.encode(request))
        except OSError as error:
            raise self._lost(error) from error

    def orphan(self, request: m.Request) -> None:
        """Leaves a request to be sent before the next one: for destructors, which may run inside `call` itself."""
        self._orphans.append(request)

    def check(self) -> None:
        """Raises Closed when what this session pinned or reserved must not be used any more."""
        if self._left:
            raise Closed(self._left)

    def leave(self, why: str) -> None:
        """Ends the session from this side: its hits and reservations raise Closed(`why`), its mappings go."""
        self._left = why
        self.close()
        self.readable.clear()
        self.writable.clear()

    def close(self) -> None:
        """Ends the session: its pins go. Its mappings stay, for the hits that it made."""
        self.alive = False
        self._sock.close()

    def _ask(self, data: bytes) -> None:
        """Sends what destructors left to send, then a request."""
        try:
            while self._orphans:
                self._sock.send(codec.encode(self._orphans[0]))
                self._orphans.popleft()
            self._sock.send(data)
        except BrokenPipeError:
            return  # the daemon hung up; what it said before that, perhaps why, is still to be read
        except OSError as error:
            raise self._lost(error) from error

    def _reply(self, number: int) -> m.Message:
        while True:
            message = self._receive()
            if message.id == number:
                return message
            if not isinstance(message, m.Segments | m.Dropped):
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
            if isinstance(message, m.Segments):
                self._map(message.segments, descriptors)
            elif isinstance(message, m.Dropped):
                self._unmap(message.segments)
            return message
        finally:
            seqpacket.close_all(descriptors)

    def _map(self, segments: list[m.Segment], descriptors: list[int]) -> None:
        """Maps what was handed out. That comes once a session, so one that cannot take it is of no more use."""
        try:
            if len(segments) != len(descriptors):
                raise LocalError(
                    "this process has no file descriptor left: close some, or raise its RLIMIT_NOFILE"
                )
            for segment in segments:
                self._map_one(segment, descriptors.pop(0))
        except OSError as error:
            self.close()
            raise LocalError(f"this process cannot map a segment of the daemon: {error}") from error
        except NexusError:
            self.close()
            raise

    def _map_one(self, segment: m.Segment, descriptor: int) -> None:
        layout, writable = self._layouts[segment.arena], segment.writable
        mapped = MappedSegment(descriptor, layout, segment.slots, segment.slot_bytes, writable=writable)
        (self.writable if writable else self.readable)[segment.segment] = mapped

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
        self.close()
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
