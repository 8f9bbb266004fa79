"""What nothing on this machine can be faster than: a bare round trip between two processes, and a bare copy.

Owns the echo process. Knows nothing of NexusKV: a floor that shared code with what it judges would judge nothing.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

Page = npt.NDArray[np.uint8]
PAYLOAD = bytes(64)
STOP_SECONDS = 10.0


class PingPong:
    """64 bytes to another Python process and back: SOCK_SEQPACKET, blocking, nothing encoded or decoded."""

    def __enter__(self) -> Self:
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._echo = subprocess.Popen(
                [sys.executable, "-m", "nexuskv.bench.echo"], stdin=theirs.fileno(), start_new_session=True
            )
        self.once()  # returns when the interpreter at the other end is up
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.close()  # the echo reads the end of the stream
        try:
            self._echo.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._echo.kill()
            self._echo.wait()

    @property
    def pid(self) -> int:
        return self._echo.pid

    def once(self) -> None:
        """One round trip."""
        self._sock.send(PAYLOAD)
        self._sock.recv(64)


def copy_seconds(targets: Sequence[Page], sources: Sequence[Page]) -> float:
    """Time to copy each source into its target, one numpy call a page."""
    start = time.perf_counter()
    for target, source in zip(targets, sources, strict=True):
        np.copyto(target, source)
    return time.perf_counter() - start
