"""The listening socket: made or inherited, and accepting also when descriptors run out.

Owns the socket's path: a live daemon there is respected, a dead one's leftover replaced. Knows nothing of sessions.
"""

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from nexuskv.errors import ArenaFull, StartupError
from nexuskv.protocol.codec import encode
from nexuskv.protocol.messages import Refused

BACKLOG = 1024


class Listener:
    """Accepts connections. `inherited` sockets and their paths belong to the service manager."""

    def __init__(self, sock: socket.socket, path: Path | None = None) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._path = path
        self._made = path.stat() if path is not None else None
        self._spare = _spare_descriptor()

    def accept(self) -> socket.socket | None:
        """The next connection; None when there is none, or when it had to be turned away."""
        try:
            return self.sock.accept()[0]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._turn_away()
            return None

    def close(self) -> None:
        """Stops listening; removes the path if it was made here and is still ours."""
        self.sock.close()
        if self._spare is not None:
            os.close(self._spare)
        if self._path is not None and self._made is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self._path.lstat(), self._made):
                    self._path.unlink()

    def _turn_away(self) -> None:
        """Says why. Without the spare descriptor the connection would stay queued, and the loop would spin on it."""
        if self._spare is not None:
            os.close(self._spare)
        with contextlib.suppress(OSError):
            sock = self.sock.accept()[0]
            sentence = "the daemon has no file descriptor left: close idle clients, or raise its LimitNOFILE"
            with sock:
                sock.send(encode(Refused(0, ArenaFull.code, sentence)))
        self._spare = _spare_descriptor()


def listen(path: Path, mode: int) -> Listener:
    """Listens on `path`, whose file gets `mode`. Raises StartupError."""
    _make_way(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.bind(os.fspath(path))
        path.chmod(mode)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise StartupError(f"cannot listen on {path}: {error.strerror}; choose another --socket") from error
    return Listener(sock, path)


def _make_way(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        _make_parent(path.parent)
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartupError(f"cannot look at {path}: {error.strerror}; choose another --socket") from error
    if not stat.S_ISSOCK(kind):
        raise StartupError(f"{path} exists and is no socket: choose another --socket, or move it away")
    if _answers(path):
        raise StartupError(
            f"a live daemon listens on {path}: stop it, or choose another --socket and --instance"
        )
    path.unlink(missing_ok=True)


def _make_parent(parent: Path) -> None:
    """Makes the directory if need be. One of another user is refused: its owner could put a false daemon there."""
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"cannot make {parent} for the socket: {error.strerror}; choose another --socket"
        ) from error
    if parent.stat().st_uid not in (0, os.geteuid()):
        raise StartupError(f"{parent} belongs to another user: choose another --socket")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except OSError as error:
            raise StartupError(f"cannot tell whether a daemon listens on {path}: {error.strerror}") from error
    return True


def _spare_descriptor() -> int | None:
    """None when another thread was quicker: the next newcomer makes us try again."""
    try:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
