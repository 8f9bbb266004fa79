"""What nothing on this machine can be faster than: a bare round trip between two processes, and a bare copy.

Owns the echo process. Knows nothing of NexusKV: a floor that shared code with what it judges would judge nothing.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

Page = npt.NDArray[np.uint8]
PAYLOAD = bytes(64)
STOP_SECONDS = 10.0


def unix_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of what an engine and a daemon talk over."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of what daemons talk over, on this host."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    for sock in (ours, theirs):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


class PingPong:
    """64 bytes to another Python process and as many back, or more: blocking, nothing encoded or decoded."""

    def __init__(
        self,
        make_pair: Callable[[], tuple[socket.socket, socket.socket]] = unix_pair,
        *,
        answer_bytes: int = len(PAYLOAD),
    ) -> None:
        self._make_pair = make_pair
        self._answer = bytearray(answer_bytes)

    def __enter__(self) -> Self:
        self._sock, theirs = self._make_pair()
        with theirs:
            self._echo = subprocess.Popen(
                [sys.executable, "-m", "nexuskv.bench.echo", str(len(self._answer))],
                stdin=theirs.fileno(),
                start_new_session=True,
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
        self._sock.recv_into(self._answer, 0, socket.MSG_WAITALL)


def copy_seconds(targets: Sequence[Page], sources: Sequence[Page]) -> float:
    """Time to copy each source into its target, one numpy call a page."""
    start = time.perf_counter()
    for target, source in zip(targets, sources, strict=True):
        np.copyto(target, source)
    return time.perf_counter() - start
