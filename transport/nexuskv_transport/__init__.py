"""Moves pages between hosts: from the arena of one daemon straight into the arena of another.

Owns the small transport interface (`base`), the registry that turns a scheme into a class, and a module or package for
each way to move bytes: loopback, TCP, RDMA. Knows regions and extents; refuses to know the daemon, its sessions and its
eviction, and who decided that a page is worth moving.
"""

from nexuskv_transport.base import (
    Admit,
    Connection,
    Done,
    Identity,
    KeyedRegion,
    Limits,
    Listener,
    Outcome,
    Plain,
    Pull,
    Region,
    Security,
    ServerEnd,
    Tls,
    TokenRegion,
    Transport,
)
from nexuskv_transport.registry import SCHEMES, open_transport

__all__ = [
    "SCHEMES",
    "Admit",
    "Connection",
    "Done",
    "Identity",
    "KeyedRegion",
    "Limits",
    "Listener",
    "Outcome",
    "Plain",
    "Pull",
    "Region",
    "Security",
    "ServerEnd",
    "Tls",
    "TokenRegion",
    "Transport",
    "open_transport",
]
