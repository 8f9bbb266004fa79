"""Starts processes on the other host of a pair, for a test on this one; and the test's side of that.

Owns the line between them: a connection a process, whose first line is its command as a JSON list, and which is its
standard input and output from then on. The process is killed when the connection ends.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.softroce.guests import SECOND

PORT = 7700
BOOT_SECONDS = 60.0


def main() -> None:
    """In the second guest: serves until the machine is switched off."""
    with socket.create_server((SECOND.address, PORT)) as server:
        while True:
            stream, _ = server.accept()
            threading.Thread(target=_serve, args=(stream,), daemon=True).start()


def _serve(stream: socket.socket) -> None:
    with stream:
        command = json.loads(_line(stream))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stream.fileno()) as process:
            assert process.stdin is not None
            try:
                while some := stream.recv(65536):
                    process.stdin.write(some)
                    process.stdin.flush()
            except OSError:
                pass  # either end is gone
            process.kill()


def _line(stream: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        line += stream.recv(1) or b"\n"
    return bytes(line)


class Remote:
    """A process on the other host."""

    def __init__(self, command: list[str]) -> None:
        self._stream = _connected()
        self._file = self._stream.makefile("rwb")
        self.tell(json.dumps(command))

    def tell(self, line: str) -> None:
        """Writes to its standard input."""
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def hear(self) -> str:
        """The next line that it prints; empty at its end."""
        return self._file.readline().decode()

    def kill(self) -> None:
        """SIGKILL. Returns at once."""
        self._file.close()
        self._stream.close()


@contextmanager
def on_the_other_host(*command: str) -> Iterator[Remote]:
    """Runs a Python command line there; killed at the end."""
    remote = Remote([sys.executable, *command])
    try:
        yield remote
    finally:
        remote.kill()


def _connected() -> socket.socket:
    until = time.monotonic() + BOOT_SECONDS
    while True:
        try:
            return socket.create_connection((SECOND.address, PORT), timeout=BOOT_SECONDS)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
