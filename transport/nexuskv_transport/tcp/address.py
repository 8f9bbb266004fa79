"""Addresses "tcp://host:port", and which of them lie on this very host.

Owns the spelling. Knows nothing of sockets but their addresses.
"""

import ipaddress
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from nexuskv.errors import LocalError

SCHEME = "tcp"


class Endpoint(NamedTuple):
    """A host, by name or number, and a port; 0 lets the kernel choose where one listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return (
            f"{SCHEME}://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{SCHEME}://{self.host}:{self.port}"
        )

    def resolve(self) -> list[tuple[int, Any]]:
        """Families and socket addresses. May ask a name server, and wait for it. Raises OSError."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]


def parse(address: str) -> Endpoint:
    """Raises LocalError."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None or address != str(Endpoint(host, port)):
        raise LocalError(
            f"{address!r} is no TCP address: write tcp://HOST:PORT, or tcp://[::1]:PORT for IPv6"
        )
    return Endpoint(host, port)


def on_this_host(address: Any) -> bool:
    """Whether a resolved address is a loopback address."""
    number = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return (mapped or number).is_loopback
