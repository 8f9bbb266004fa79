"""One client's socket in the daemon: messages in, messages out, never blocking.

Owns the queue of what the client has not taken yet. While that queue holds anything, nothing more is read from the
client: a slow reader slows itself only, and the queue stays as long as the answer to one request.
"""

import socket
from collections import deque
from collections.abc import Sequence

from nexuskv.ipc import seqpacket
from nexuskv.ipc.seqpacket import Receiver


class Connection:
    """A non-blocking SOCK_SEQPACKET socket; `closing` once it shall end when all is sent.

    `mute` once its client hung up: it takes nothing any more, but what it said before is still to be read.
    """

    def __init__(self, sock: socket.socket, number: int) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, seqpacket.SEND_BUFFER)
        self.sock = sock
        self._descriptor = sock.fileno()
        self.number = number
        self.closing = False
        self.mute = False
        self._outbox: deque[tuple[bytes, list[int]]] = deque()

    @property
    def blocked(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._outbox)

    def receive(self, receiver: Receiver) -> memoryview | None:
        """The next message, empty at the end; None when there is none now."""
        return receiver.polled(self._descriptor)

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> bool:
        """Sends now, or queues behind what waits and returns False. Raises OSError."""
        if self.mute:
            return True
        if not self._outbox:
            try:
                if descriptors:
                    seqpacket.send(self.sock, data, descriptors)
                else:
                    self.sock.send(data)
                return True
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                self._hear_only()
                return True
        self._outbox.append((data, seqpacket.duplicates(descriptors)))
        return False

    def flush(self) -> None:
        """Sends what waits, as far as it goes. Raises OSError."""
        try:
            while self._outbox:
                seqpacket.send(self.sock, *self._outbox[0])
                seqpacket.close_all(self._outbox.popleft()[1])
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self._hear_only()

    def close(self) -> None:
        """Ends the connection; what waits is lost."""
        self._hear_only()
        self.sock.close()

    def _hear_only(self) -> None:
        self.mute = True
        for _, descriptors in self._outbox:
            seqpacket.close_all(descriptors)
        self._outbox.clear()
