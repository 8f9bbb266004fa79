"""The socket to the daemon: deadlines, what is lost with it, and whether the daemon gives a sign.

Owns the socket. Knows nothing of what the messages say; `Session` sees to it that one thread at a time receives.
"""

import contextlib
import select
import socket
from pathlib import Path

from nexuskv.errors import DeadlineExceeded, Disconnected, NexusError
from nexuskv.ipc import seqpacket


class Wire:
    """A connection, until it is not `alive` any more."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Connects. Raises Disconnected, LocalError."""
        self._path = path
        self._timeout = timeout
        self._receiver = seqpacket.Receiver()
        self._silent = 0
        """After a deadline that passed: the poll event that will show that the daemon goes on."""
        self.sock = seqpacket.connect(path, timeout)
        self.alive = True

    def wait_at_most(self, seconds: float) -> None:
        """Changes how long each send and receive may take from now on."""
        self._timeout = seconds
        if self.alive:
            seqpacket.limit(self.sock, seconds)

    def check(self) -> None:
        """Raises Disconnected when it ended."""
        if not self.alive:
            raise Disconnected("this session ended: call again, which connects anew")

    def exchanged(self, data: bytes) -> tuple[memoryview, list[int]] | None:
        """Sends a message; the next one and its descriptors. None when it could not be sent in time. Raises OSError."""
        received = self._receiver.exchanged(self.sock, data)
        if received is not None:
            self._silent = 0
        return received

    def received(self) -> tuple[memoryview, list[int]]:
        """The next message and its descriptors. Raises OSError."""
        received = self._receiver.with_descriptors(self.sock)
        self._silent = 0
        return received

    def tell(self, data: bytes) -> None:
        """Sends a message that wants no reply. Raises Disconnected, DeadlineExceeded."""
        try:
            self.sock.send(data)
        except OSError as error:
            raise self.lost(error, sent=False) from error
        except BaseException:  # a signal's handler: nobody knows whether it was sent
            self.hang_up()
            raise

    def hint(self, data: bytes) -> bool:
        """Sends a message if that needs no waiting. Returns whether it did."""
        try:
            self.sock.send(data, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def polled(self, events: int) -> bool:
        """Whether the kernel has `events` of this socket now, or its end."""
        poll = select.poll()
        poll.register(self.sock, events)
        return bool(poll.poll(0))

    def check_silence(self) -> None:
        """Raises DeadlineExceeded when a deadline passed and the daemon has given no sign since."""
        if self._silent and self.alive:
            if not self.polled(self._silent):
                raise self.late(sent=False)
            self._silent = 0

    def hang_up(self) -> None:
        """Ends the connection, also for a thread that waits for its reply: closing alone would not wake it."""
        self.alive = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def let_go(self) -> None:
        """In a forked child: closes its copy of the parent's socket, and the parent's connection goes on."""
        self.alive = False
        self.sock.close()

    def lost(self, error: OSError | None, *, sent: bool = True) -> NexusError:
        """What an error of the socket means; None is the end of the stream."""
        if isinstance(error, BlockingIOError):
            return self.late(sent=sent)
        self.hang_up()
        return Disconnected(
            f"the daemon at {self._path} ended the session ({error or 'end of stream'}): the next call connects anew"
        )

    def late(self, *, sent: bool) -> DeadlineExceeded:
        """A deadline passed, after the request was `sent` or before."""
        self._silent = self._silent or (select.POLLIN if sent else select.POLLOUT)
        return DeadlineExceeded(
            f"no answer from {self._path} within {self._timeout} s: the daemon is stopped or overloaded; try again",
            sent=sent,
        )
