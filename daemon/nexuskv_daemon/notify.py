"""Talks with the service manager: reports READY, STOPPING and STATUS, and takes over the sockets it opened.

Owns the two environment protocols of systemd, sd_notify(3) and sd_listen_fds(3), in plain Python. Refuses to
know what the daemon serves: it hands out listening sockets that were checked, and passes on sentences.
"""

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import NamedTuple

from nexuskv.errors import StartupError

log = logging.getLogger(__name__)

LISTEN_FDS_START = 3  # SD_LISTEN_FDS_START: what follows stdin, stdout and stderr

_SERVED = "AF_UNIX, SOCK_SEQPACKET, listening"

Environment = MutableMapping[str, str]


class Inherited(NamedTuple):
    """A listening socket that the service manager opened, and its name in the unit (FileDescriptorName=)."""

    name: str
    socket: socket.socket


def ready(status: str, environ: Environment = os.environ) -> bool:
    """Say that start-up is over and clients are served; False if nobody asked to be told."""
    return _send(f"READY=1\n{_status_line(status)}", environ)


def stopping(status: str, environ: Environment = os.environ) -> bool:
    """Say that the daemon has begun to stop; False if nobody asked to be told."""
    return _send(f"STOPPING=1\n{_status_line(status)}", environ)


def status(text: str, environ: Environment = os.environ) -> bool:
    """Set the one-line state that `systemctl status` shows; False if nobody asked to be told."""
    return _send(_status_line(text), environ)


def _status_line(text: str) -> str:
    # A line feed would end the variable and let the rest of the text set others.
    return f"STATUS={' '.join(text.split())}"


def _send(state: str, environ: Environment) -> bool:
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address[0] not in "/@":
        log.warning("NOTIFY_SOCKET=%s is neither a path nor an abstract socket; not notifying", address)
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        try:
            manager.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError as error:
            # A deaf service manager is no reason to stop serving.
            log.warning("cannot notify the service manager at %s: %s", address, error)
            return False
    return True


def listen_fds(environ: Environment = os.environ) -> list[Inherited]:
    """Take over the sockets that the service manager opened for this very process; empty if there are none.

    Lifetime: the caller owns the sockets. The variables are removed from `environ` in any case, so that no
    child takes our descriptors for its own, and the descriptors are made close-on-exec for the same reason.

    Raises StartupError if the variables are malformed or a descriptor is no listening AF_UNIX SOCK_SEQPACKET
    socket. Source: sd_listen_fds(3), sd_listen_fds_with_names(3).
    """
    pid, count, names = (environ.pop(f"LISTEN_{key}", "") for key in ("PID", "FDS", "FDNAMES"))
    if not pid or _number("LISTEN_PID", pid) != os.getpid():
        return []
    fds = range(LISTEN_FDS_START, LISTEN_FDS_START + _number("LISTEN_FDS", count))
    return _take(dict(zip(fds, _names(names, len(fds)), strict=True)))


def _number(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise StartupError(
            f"{variable}={text!r} is not a number: start nexuskvd from a systemd socket unit, or unset it"
        )
    return int(text)


def _names(text: str, count: int) -> list[str]:
    if not text:
        return ["unknown"] * count
    names = text.split(":")
    if len(names) != count:
        raise StartupError(f"LISTEN_FDNAMES={text!r} names {len(names)} descriptors, LISTEN_FDS says {count}")
    return names


def _take(named: dict[int, str]) -> list[Inherited]:
    taken: list[Inherited] = []
    try:
        for fd, name in named.items():
            taken.append(Inherited(name, _adopt(fd, name)))
    except StartupError:
        for inherited in taken:
            inherited.socket.close()
        raise
    return taken


def _adopt(fd: int, name: str) -> socket.socket:
    try:
        os.set_inheritable(fd, False)
        adopted = socket.socket(fileno=fd)
    except OSError as error:
        raise StartupError(f"inherited descriptor {fd} ({name}) is no socket: {error.strerror}") from error
    what = _describe(adopted)
    if what == _SERVED:
        return adopted
    adopted.close()
    raise StartupError(
        f"inherited descriptor {fd} ({name}) is a socket of {what}; nexuskvd needs {_SERVED}: "
        "use ListenSequentialPacket=/PATH and Accept=no in the socket unit"
    )


def _describe(sock: socket.socket) -> str:
    listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    family, kind = (getattr(value, "name", str(value)) for value in (sock.family, sock.type))
    return f"{family}, {kind}, {'listening' if listening else 'not listening'}"
