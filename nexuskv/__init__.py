"""NexusKV: a host's cache of LLM inference state, read in place by engine processes.

Gathers the public names. `connect` reaches the daemon; `mha`, `mla` and `mamba2` describe what a page holds.
"""

from nexuskv.client import Cache, Client, Handle, Hit, PageStatus, Reservation, WritablePage, connect
from nexuskv.contract import PRESETS, Descriptor, mamba2, mha, mla
from nexuskv.errors import (
    ArenaFull,
    BadRequest,
    Closed,
    CostUnknown,
    DeadlineExceeded,
    DescriptorConflict,
    DescriptorError,
    Disconnected,
    LocalError,
    NexusError,
    NotPermitted,
    NotReserved,
    ParentMissing,
    PinningRefused,
    RemoteError,
    StartupError,
    StorageError,
    UnknownDescriptor,
    VersionMismatch,
)
from nexuskv.native import Moved, PinsFull, get_include, get_source

__all__ = [
    "PRESETS",
    "ArenaFull",
    "BadRequest",
    "Cache",
    "Client",
    "Closed",
    "CostUnknown",
    "DeadlineExceeded",
    "Descriptor",
    "DescriptorConflict",
    "DescriptorError",
    "Disconnected",
    "Handle",
    "Hit",
    "LocalError",
    "Moved",
    "NexusError",
    "NotPermitted",
    "NotReserved",
    "PageStatus",
    "ParentMissing",
    "PinningRefused",
    "PinsFull",
    "RemoteError",
    "Reservation",
    "StartupError",
    "StorageError",
    "UnknownDescriptor",
    "VersionMismatch",
    "WritablePage",
    "connect",
    "get_include",
    "get_source",
    "mamba2",
    "mha",
    "mla",
]
