"""The control connection at both ends: addresses, dialling and answering, plain or with mutual TLS.

Owns the spelling "rdma://HOST:PORT". The rules are those of TCP: plain on loopback alone unless an operator wants it
anywhere, else certificates at both ends. Knows nothing of what is said.
"""

import socket
import ssl
from typing import Any

from nexuskv.errors import LocalError
from nexuskv_transport import tls
from nexuskv_transport.base import Identity
from nexuskv_transport.tcp import address as tcp
from nexuskv_transport.tcp.address import Endpoint
from nexuskv_transport.tcp.sockets import CONNECT_SECONDS, check_allowed, prepare
from nexuskv_transport.tcp.strand import Dial
from nexuskv_transport.tcp.stream import Cutter

SCHEME = "rdma"
ANSWER_SECONDS = 30.0
"""How long the other end may take for a message that it owes."""


def parse(address: str) -> Endpoint:
    """Raises LocalError."""
    scheme, _, rest = address.partition(":")
    if scheme == SCHEME:
        try:
            return tcp.parse(f"{tcp.SCHEME}:{rest}")
        except LocalError:
            pass  # said below, in the words of this transport
    raise LocalError(f"{address!r} is no RDMA address: write rdma://HOST:PORT, or rdma://[::1]:PORT for IPv6")


def spelled(endpoint: Endpoint) -> str:
    """The address that `parse` reads."""
    return SCHEME + str(endpoint).removeprefix(tcp.SCHEME)


def dialled(dial: Dial, cutter: Cutter) -> socket.socket:
    """A connection to a serving end, secured. The cutter holds it. Raises OSError or Hangup."""
    failure = OSError("its name has no address")
    for family, address in dial.endpoint.resolve():
        check_allowed(dial.endpoint, address, dial.security)
        try:
            return _reached(socket.socket(family, socket.SOCK_STREAM), address, dial, cutter)
        except ssl.SSLError:
            raise
        except OSError as error:
            failure = error
    raise failure


def answered(
    raw: socket.socket, context: ssl.SSLContext | None, cutter: Cutter
) -> tuple[socket.socket, Identity]:
    """The serving end's side of `raw`, secured, and who is there. Raises OSError or Hangup; `raw` is then closed."""
    name = str(raw.getpeername()[0])
    sock = raw
    try:
        cutter.hold(raw)
        prepare(raw)
        raw.settimeout(ANSWER_SECONDS)
        if context is None:
            return raw, Identity(f"unknown at {name}", frozenset())
        sock = secured = context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        cutter.hold(secured)
        secured.do_handshake()
        return secured, tls.identity(secured, name)
    except BaseException:
        cutter.release()
        sock.close()
        raise


def _reached(raw: socket.socket, address: Any, dial: Dial, cutter: Cutter) -> socket.socket:
    sock = raw
    try:
        cutter.hold(raw)
        prepare(raw)
        raw.settimeout(CONNECT_SECONDS)
        raw.connect(address)
        raw.settimeout(ANSWER_SECONDS)
        if dial.context is None:
            return raw
        sock = secured = dial.context.wrap_socket(
            raw, server_hostname=dial.endpoint.host, do_handshake_on_connect=False
        )
        cutter.hold(secured)
        secured.do_handshake()
        return secured
    except BaseException:
        cutter.release()
        sock.close()
        raise


def explained(error: OSError) -> str:
    """What went wrong, as a sentence's end."""
    return tls.explained(error) if isinstance(error, ssl.SSLError) else error.strerror or str(error)
