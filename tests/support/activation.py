"""Starts a program the way systemd starts a service: with a notify socket, and with inherited listening sockets.

Owns what a service manager does between fork and exec. Refuses to know which program that is.
"""

import contextlib
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# Each descriptor is copied out of the way first, so that none is overwritten before it has been moved.
_EXEC = """
import fcntl, os, sys
pid_offset, fds, *command = sys.argv[1:]
spares = [fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, 100) for fd in fds.split(",")]
for target, spare in enumerate(spares, start=3):
    os.dup2(spare, target, inheritable=True)
os.environ |= {"LISTEN_PID": str(os.getpid() + int(pid_offset)), "LISTEN_FDS": str(len(spares))}
os.execv(command[0], command)
"""


def activated(command: Sequence[str], *fds: int, pid_offset: int = 0) -> list[str]:
    """`command` with `fds` as its descriptors 3 and up, and LISTEN_PID and LISTEN_FDS saying so.

    Whoever starts the command must let it inherit them (`pass_fds`). `pid_offset` falsifies LISTEN_PID.
    """
    return [sys.executable, "-c", _EXEC, str(pid_offset), ",".join(map(str, fds)), *command]


@contextlib.contextmanager
def listening(path: Path, kind: int = socket.SOCK_SEQPACKET) -> Iterator[socket.socket]:
    """A listening socket at `path`, which stays there when the socket is closed."""
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.bind(str(path))
        sock.listen()
        yield sock


@contextlib.contextmanager
def notify_socket(address: str) -> Iterator[socket.socket]:
    """The service manager's end of NOTIFY_SOCKET=`address`: a path, or with a leading @ an abstract name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address[1:] if address[0] == "@" else address)
        sock.settimeout(30)
        yield sock
