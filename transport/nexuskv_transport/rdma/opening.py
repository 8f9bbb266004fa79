"""Opens the RDMA transport, if this host has what it takes.

Owns the sentence for a host that has not. Importing this module imports no verbs.
"""

from importlib import import_module
from typing import cast

from nexuskv.errors import StartupError
from nexuskv_transport.base import Security, Transport


def open_rdma(address: str, security: Security) -> Transport:
    """The transport of `address`'s device (see `transport`). Raises StartupError without pyverbs or a device."""
    try:
        module = import_module("nexuskv_transport.rdma.transport")
    except ImportError as error:
        raise StartupError(
            f"RDMA needs pyverbs, which cannot be imported ({error}): install Debian's or Ubuntu's python3-pyverbs, or"
            " Fedora's, of the same release as the installed rdma-core"
        ) from error
    return cast("Transport", module.RdmaTransport(address, security))
