"""One message and its file descriptors over a SOCK_SEQPACKET socket.

Owns the ancillary data: SCM_RIGHTS both ways and SO_PEERCRED. Knows nothing of what a message says. Every descriptor
received is close-on-exec and belongs to the caller.
"""

import array
import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nexuskv.errors import Disconnected, LocalError
from nexuskv.native import exchange, poll
from nexuskv.protocol.messages import MAX_DESCRIPTORS, MAX_MESSAGE_BYTES

_RIGHTS_SPACE = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
_CLOEXEC = int(socket.MSG_CMSG_CLOEXEC)  # as an enum it would cost as much as the call
SEND_BUFFER = 1 << 20
"""Bytes of SO_SNDBUF: the kernel's default would refuse a message of MAX_KEYS keys on some machines."""
_TIMEVAL = struct.Struct("ll")
_CREDENTIALS = struct.Struct("3i")


class Credentials(NamedTuple):
    """Who opened the other end, as the kernel says."""

    pid: int
    uid: int
    gid: int


class Receiver:
    """Receives into one buffer that it keeps: the bytes of a message are valid until the next one is received."""

    def __init__(self) -> None:
        self._buffer = bytearray(MAX_MESSAGE_BYTES + 1)
        self._view = memoryview(self._buffer)

    def plain(self, sock: socket.socket) -> memoryview:
        """The next message of a peer that sends no descriptors; empty when it hung up.

        A message longer than MAX_MESSAGE_BYTES shows as MAX_MESSAGE_BYTES + 1 bytes: the kernel cut the rest off.
        Descriptors that come nevertheless are closed by the kernel.
        """
        try:
            return self._view[: sock.recv_into(self._buffer)]
        except ConnectionResetError:
            # It hung up without having read all of ours. The kernel says so once, before what it had sent until then.
            return self._view[: sock.recv_into(self._buffer)]

    def polled(self, descriptor: int) -> memoryview | None:
        """As `plain`, of a socket by its descriptor; None when no message is there now. Never waits."""
        nbytes = poll(descriptor, self._buffer)
        return None if nbytes is None else self._view[:nbytes]

    def exchanged(self, sock: socket.socket, request: bytes) -> tuple[memoryview, list[int]] | None:
        """Sends `request`; then the next message and its descriptors. None when it could not be sent in time."""
        received = exchange(sock.fileno(), request, self._buffer)
        if received is None:
            return None
        return self._view[: received[0]], received[1]

    def with_descriptors(self, sock: socket.socket) -> tuple[memoryview, list[int]]:
        """The next message and its descriptors; an empty message when the peer hung up."""
        try:
            nbytes, ancillary, _, _ = sock.recvmsg_into([self._buffer], _RIGHTS_SPACE, _CLOEXEC)
        except ConnectionResetError:
            # It hung up without having read all of ours. The kernel says so once, before what it had sent until then.
            nbytes, ancillary, _, _ = sock.recvmsg_into([self._buffer], _RIGHTS_SPACE, _CLOEXEC)
        return self._view[:nbytes], _descriptors(ancillary) if ancillary else []


def limit(sock: socket.socket, timeout: float) -> None:
    """Lets each send and receive take `timeout` seconds at most."""
    # Kernel timeouts: Python's own would add a poll() to every receive.
    value = _TIMEVAL.pack(int(timeout), int(timeout % 1 * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def connect(path: Path, timeout: float) -> socket.socket:
    """A connection to the daemon at `path`; each send and receive takes `timeout` seconds at most.

    Past that they raise BlockingIOError. Raises Disconnected, LocalError.
    """
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise LocalError(
            f"this process cannot open a socket ({error.strerror}): close some files, or raise its RLIMIT_NOFILE"
        ) from error
    try:
        limit(sock, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        sock.connect(os.fspath(path))
    except OSError as error:
        sock.close()
        raise Disconnected(
            f"no daemon at {path} ({error.strerror}): start nexuskvd, or say where it listens with "
            "connect('unix:/path') or NEXUSKV_SOCKET"
        ) from error
    return sock


def send(sock: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> None:
    """Sends one message whole; the kernel duplicates `descriptors`, so the caller keeps its own."""
    if descriptors:
        rights = array.array("i", descriptors)
        sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    else:
        sock.send(data)


def credentials(sock: socket.socket) -> Credentials:
    """SO_PEERCRED: who connected, as of the time of its connect."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Credentials(*_CREDENTIALS.unpack(raw))


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def duplicates(descriptors: Sequence[int]) -> list[int]:
    """Descriptors of the caller's own for each of these: all, or none. Raises OSError."""
    with contextlib.ExitStack() as undo:
        own: list[int] = []
        for descriptor in descriptors:
            own.append(os.dup(descriptor))
            undo.callback(os.close, own[-1])
        undo.pop_all()
        return own


def close_all(descriptors: Sequence[int]) -> None:
    """Closes descriptors that nobody took."""
    for descriptor in descriptors:
        os.close(descriptor)
