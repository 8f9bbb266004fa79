"""Sockets as this transport wants them: options, dialling, and where plain TCP is allowed.

Owns the numbers of the kernel's own detection of dead peers. Knows nothing of what is sent.
"""

import socket
from typing import Any

from nexuskv_transport.base import Plain, Security
from nexuskv_transport.tcp.address import Endpoint, on_this_host

CONNECT_SECONDS = 10.0
KEEP_ALIVE = (
    (
        socket.TCP_KEEPIDLE,
        10,
    ),  # seconds of silence before the kernel asks whether the other host still lives,
    (socket.TCP_KEEPINTVL, 5),  # seconds between questions,
    (socket.TCP_KEEPCNT, 3),  # and how many may stay unanswered
    (socket.TCP_USER_TIMEOUT, 25_000),  # milliseconds that what was sent may stay unacknowledged
)
BACKLOG = 256


class NotAllowed(OSError):
    """Plain TCP to or on an address that is not this host's alone."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(
            f"plain TCP is for loopback addresses, and {endpoint} is none: configure TLS (`nexuskv certs` makes"
            " certificates for a test), or allow plain TCP anywhere (Plain(anywhere=True)) on a network you trust"
        )
        self.strerror = str(self)


def prepare(sock: socket.socket) -> None:
    """What both ends of a stream want. Buffers are left to the kernel, which sizes them by what a path can hold."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def check_allowed(endpoint: Endpoint, address: Any, security: Security) -> None:
    """Raises NotAllowed for plain TCP where others could listen."""
    if isinstance(security, Plain) and not security.anywhere and not on_this_host(address):
        raise NotAllowed(endpoint)


def listening(endpoint: Endpoint, security: Security) -> socket.socket:
    """A socket that listens, and never waits. Raises OSError."""
    family, address = endpoint.resolve()[0]
    check_allowed(endpoint, address, security)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
