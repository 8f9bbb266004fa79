"""A daemon that goes away at a message of the test's choice: a real one, behind a socket that hangs up.

Owns the socket between clients and the daemon, and passes on messages and descriptors as they are. Clients that
connect again are served again, as by a daemon that was started anew.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from nexuskv.ipc import seqpacket
from nexuskv.protocol import codec
from nexuskv.protocol.messages import Message
from tests.support.daemon import Daemon


class Relay:
    """Serves `daemon` at `address`; hangs up on whoever sends a message of a kind in `fatal`."""

    def __init__(self, daemon: Daemon) -> None:
        self.fatal: tuple[type[Message], ...] = ()
        self.deaths = 0
        self._daemon = daemon
        path = Path(f"{daemon.socket}.relay")
        self.address = f"unix:{path}"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        self._listening.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Ends with its last connection, which clients have closed by then."""
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
            daemon.connect(str(self._daemon.socket))
            while True:
                ready, _, _ = select.select([client, daemon], [], [])
                if client in ready and not self._pass(client, daemon, self.fatal):
                    return
                if daemon in ready and not self._pass(daemon, client):
                    return

    def _pass(
        self, source: socket.socket, sink: socket.socket, fatal: tuple[type[Message], ...] = ()
    ) -> bool:
        """Passes on one message; whether the connection goes on."""
        data, descriptors = seqpacket.Receiver().with_descriptors(source)
        try:
            if not data:
                return False
            if fatal and isinstance(codec.decode_request(data), fatal):
                self.deaths += 1
                return False
            seqpacket.send(sink, bytes(data), descriptors)
        finally:
            seqpacket.close_all(descriptors)
        return True


@contextlib.contextmanager
def relaying(daemon: Daemon) -> Iterator[Relay]:
    """A relay to `daemon`, until the clients that it serves are closed."""
    relay = Relay(daemon)
    try:
        yield relay
    finally:
        relay.close()
