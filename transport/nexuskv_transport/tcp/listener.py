"""Where peers connect to pull: accepts, and starts a serving end for each stream.

Owns how many streams there may be, and which live. Knows nothing of what they say.
"""

import contextlib
import errno
import logging
import os
import threading

from nexuskv.errors import StartupError
from nexuskv_transport.base import Listener, Security, ServerEnd
from nexuskv_transport.tcp.address import Endpoint
from nexuskv_transport.tcp.server import House, TcpServerEnd
from nexuskv_transport.tcp.sockets import listening

MAX_STREAMS = 1024
"""Of all peers together; each costs a thread. Who comes later is turned away."""

log = logging.getLogger(__name__)


class TcpListener(Listener):
    """Listens from the start. Raises StartupError."""

    def __init__(self, endpoint: Endpoint, security: Security, house: House) -> None:
        try:
            self._sock = listening(endpoint, security)
        except OSError as error:
            raise StartupError(f"cannot listen on {endpoint}: {error.strerror}") from error
        self.address = str(Endpoint(endpoint.host, self._sock.getsockname()[1]))
        self._house = house
        self._lock = threading.Lock()
        self._ends: set[TcpServerEnd] = set()
        self._spare = _spare()

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> ServerEnd | None:
        try:
            sock, peer = self._sock.accept()
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                self._turn_away()
            return None
        sock.setblocking(True)
        with self._lock:
            if len(self._ends) < MAX_STREAMS:
                end = TcpServerEnd(sock, str(Endpoint(*peer[:2])), self._house, self._forget)
                self._ends.add(end)
                return end
        log.warning("%s: turned away, there are %d streams already", peer[0], MAX_STREAMS)
        sock.close()
        return None

    def close(self) -> None:
        self._sock.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        with self._lock:
            ends = list(self._ends)
        for end in ends:
            end.close()

    def _forget(self, end: TcpServerEnd) -> None:
        with self._lock:
            self._ends.discard(end)

    def _turn_away(self) -> None:
        """Without the spare descriptor the newcomer would stay queued, and its owner's loop would spin on it."""
        if self._spare is not None:
            os.close(self._spare)
        with contextlib.suppress(OSError):
            self._sock.accept()[0].close()
        self._spare = _spare()
        log.warning("no file descriptor is left: a peer was turned away; raise LimitNOFILE")


def _spare() -> int | None:
    try:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
