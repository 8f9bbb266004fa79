"""The C core: the shared index by which a process finds and pins pages without the daemon.

Gathers the binding's names, and says where header and source lie for C and C++ programs. Owns no policy.
"""

from pathlib import Path

from nexuskv.native._core import (
    BEING_WRITTEN,
    EXISTS,
    LIVE,
    PRESENT,
    RETIRING,
    WRITING,
    FullError,
    LayoutError,
    Moved,
    PinArray,
    Pins,
    PinsFull,
    Reader,
    Writer,
    exchange,
    fill,
    format_index,
    format_pins,
    index_bytes,
    lock_owner,
    owner_alive,
    pin_bytes,
    poll,
)

__all__ = [
    "BEING_WRITTEN",
    "EXISTS",
    "LIVE",
    "PRESENT",
    "RETIRING",
    "WRITING",
    "FullError",
    "LayoutError",
    "Moved",
    "PinArray",
    "Pins",
    "PinsFull",
    "Reader",
    "Writer",
    "exchange",
    "fill",
    "format_index",
    "format_pins",
    "get_include",
    "get_source",
    "index_bytes",
    "lock_owner",
    "owner_alive",
    "pin_bytes",
    "poll",
]


def get_include() -> str:
    """Directory of `nexuskv.h`, for a compiler's -I."""
    return str(Path(__file__).parent)


def get_source() -> str:
    """The one C file to compile into a program that uses `nexuskv.h`."""
    return str(Path(__file__).parent / "nexuskv.c")
