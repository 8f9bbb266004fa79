"""Bytes both ways over one socket, plain or encrypted, between memory that the caller owns.

Owns how to wait and how to be interrupted: one thread receives, one thread at a time sends, and any thread may cut.
Knows nothing of frames.
"""

import contextlib
import select
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from nexuskv_transport.tls import explained

Buffers = Sequence[memoryview | bytearray | bytes]


class Hangup(Exception):
    """The other end is gone, or the stream was cut; the sentence says what is known."""


class Stream(ABC):
    """A connected socket. All methods but `cut` are the owner's."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @abstractmethod
    def send(self, buffers: Buffers, nbytes: int) -> None:
        """Sends all of them, `nbytes`, straight from where they are; waits. Raises Hangup."""

    @abstractmethod
    def post(self, data: bytearray) -> int:
        """Sends as much as the socket takes at once, and returns how much; never waits. Raises Hangup."""

    @abstractmethod
    def receive(self, buffer: bytearray) -> int:
        """Whatever comes next, at least a byte; waits. Raises Hangup."""

    @abstractmethod
    def fill(self, buffers: Sequence[memoryview | bytearray], nbytes: int) -> None:
        """Receives into them, `nbytes` in all, until they are full; waits. Raises Hangup."""


class PlainStream(Stream):
    """One system call moves a whole batch of pages, and no Python runs meanwhile."""

    def send(self, buffers: Buffers, nbytes: int) -> None:
        try:
            sent = self._sock.sendmsg(buffers, (), socket.MSG_NOSIGNAL)
            while sent < nbytes:  # a signal came, or more than the kernel sends at once
                buffers, nbytes = beyond(buffers, sent), nbytes - sent
                sent = self._sock.sendmsg(buffers, (), socket.MSG_NOSIGNAL)
        except OSError as error:
            raise Hangup(_said(error)) from error

    def post(self, data: bytearray) -> int:
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise Hangup(_said(error)) from error

    def receive(self, buffer: bytearray) -> int:
        try:
            return self._sock.recv_into(buffer) or _hung_up()
        except OSError as error:
            raise Hangup(_said(error)) from error

    def fill(self, buffers: Sequence[memoryview | bytearray], nbytes: int) -> None:
        left: Buffers = buffers
        while nbytes:
            try:
                received = self._sock.recvmsg_into(left, 0, socket.MSG_WAITALL)[0]
            except OSError as error:
                raise Hangup(_said(error)) from error
            if received == nbytes:
                return
            left, nbytes = beyond(left, received or _hung_up()), nbytes - received


class TlsStream(Stream):
    """An OpenSSL object is no two threads' at a time: a lock is held around each call, and never while waiting."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock)
        sock.setblocking(False)
        self._tls = sock
        self._lock = threading.Lock()

    def send(self, buffers: Buffers, nbytes: int) -> None:
        for buffer in buffers:
            left = memoryview(buffer).cast("B")
            while left:
                sent = self._write(left)
                left = left[sent:]
                if not sent:
                    self._wait(select.POLLOUT)

    def post(self, data: bytearray) -> int:
        return self._write(data)

    def receive(self, buffer: bytearray) -> int:
        return self._read(memoryview(buffer))

    def fill(self, buffers: Sequence[memoryview | bytearray], nbytes: int) -> None:
        for buffer in buffers:
            left = memoryview(buffer).cast("B")
            while left:
                left = left[self._read(left) :]

    def _write(self, data: memoryview | bytearray) -> int:
        try:
            with self._lock:
                return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise Hangup(_said(error)) from error

    def _read(self, into: memoryview) -> int:
        while True:
            try:
                with self._lock:
                    return self._tls.recv_into(into) or _hung_up()
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
            except OSError as error:
                raise Hangup(_said(error)) from error

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._tls, event)
        poll.poll()


class Cutter:
    """Ends a socket under the thread that waits on it; that thread then closes it. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._sentence: str | None = None

    def hold(self, sock: socket.socket) -> None:
        """What the owner waits on from now on. Raises Hangup after `cut`."""
        with self._lock:
            self._sock = sock
            if self._sentence is not None:
                shut(sock, socket.SHUT_RDWR)
                raise Hangup(self._sentence)

    def release(self) -> None:
        """The owner is about to close it."""
        with self._lock:
            self._sock = None

    def cut(self, sentence: str) -> None:
        """Wakes the owner up; the first sentence is remembered."""
        with self._lock:
            self._sentence = self._sentence or sentence
            if self._sock is not None:
                shut(self._sock, socket.SHUT_RDWR)

    @property
    def sentence(self) -> str | None:
        """Why it was cut; None if it was not."""
        return self._sentence


def shut(sock: socket.socket, how: int) -> None:
    """Shuts the socket down below any TLS object, which is another thread's. Harmless where it has ended already."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, how)


def say_goodbye(sock: socket.socket) -> None:
    """Sends the end, and waits for the other side's: closing with bytes unread is a reset, and loses our last words."""
    shut(sock, socket.SHUT_WR)
    with contextlib.suppress(OSError):
        sock.settimeout(None)
        while socket.socket.recv(sock, 1 << 16):
            pass


def beyond(buffers: Buffers, nbytes: int) -> Buffers:
    """What is left of them after the first `nbytes`."""
    for index, buffer in enumerate(buffers):
        view = memoryview(buffer)
        if nbytes < view.nbytes:
            return [view.cast("B")[nbytes:], *buffers[index + 1 :]]
        nbytes -= view.nbytes
    return ()


def _hung_up() -> int:
    raise Hangup("it hung up")


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {explained(error)}"
    return (error.strerror or str(error)).lower()
