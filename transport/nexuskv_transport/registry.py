"""From an address to the transport that understands it, imported only when somebody asks for it.

Owns the list of schemes. Knows nothing of any transport: `tcp` works where no RDMA library is installed, because
nothing of `rdma` is imported before it is asked for.
"""

from importlib import import_module
from typing import cast

from nexuskv.errors import LocalError
from nexuskv_transport.base import Plain, Security, Transport

SCHEMES = {
    "loopback": "nexuskv_transport.loopback:LoopbackTransport",
    "tcp": "nexuskv_transport.tcp.transport:TcpTransport",
    "rdma": "nexuskv_transport.rdma.transport:RdmaTransport",
}
"""Scheme to "module:class"; the class is made with (address, security)."""

LOOPBACK_ONLY = Plain()


def open_transport(address: str, security: Security = LOOPBACK_ONLY) -> Transport:
    """The transport for `address`: "loopback:", "tcp:" or "tcp://host:port", "rdma:" or "rdma://device".

    Only what a transport needs to know of its own host is taken from the address (RDMA: the device). A process opens
    one for each scheme it uses. Raises LocalError for an unknown scheme, StartupError where the transport cannot run.
    """
    scheme = address.partition(":")[0]
    if scheme not in SCHEMES:
        raise LocalError(
            f"{address!r} names no transport: begin with {', '.join(f'{each}:' for each in SCHEMES)}"
        )
    module, _, name = SCHEMES[scheme].partition(":")
    return cast("Transport", getattr(import_module(module), name)(address, security))
