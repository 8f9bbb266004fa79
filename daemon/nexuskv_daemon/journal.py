"""What a daemon must know to take over the objects of an earlier one, and cannot read in them.

Owns one small file beside the objects: tenants by the number in their objects' names, and the descriptors of arenas. It
is replaced whole, so a daemon that dies while writing leaves the old one.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from nexuskv.errors import StartupError

VERSION = 1


class ArenaLine(msgspec.Struct, array_like=True):
    """One arena: `descriptor` in canonical msgpack."""

    number: int
    tenant: str
    descriptor: bytes


class Journal(msgspec.Struct, forbid_unknown_fields=True):
    """Everything; lists only grow."""

    version: int = VERSION
    tenants: dict[str, int] = {}
    arenas: list[ArenaLine] = []


def read(path: Path) -> Journal | None:
    """The journal an earlier daemon left, None if there is none. Raises StartupError with what to do."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        journal = msgspec.msgpack.decode(data, type=Journal)
    except msgspec.DecodeError as error:
        raise StartupError(
            f"{path} is damaged ({error}): start with --fresh, which drops what is cached"
        ) from error
    if journal.version != VERSION:
        raise StartupError(
            f"{path} was written by another release (version {journal.version}, this one writes {VERSION}): start that "
            "release once more and stop it, or start with --fresh, which drops what is cached"
        )
    return journal


def write(path: Path, journal: Journal) -> None:
    """Replaces the journal."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.msgpack.encode(journal))
    fresh.replace(path)


def remove(path: Path) -> None:
    """Removes it, also one that was being written."""
    for name in (path, path.with_name(f"{path.name}.new")):
        with contextlib.suppress(FileNotFoundError):
            name.unlink()
