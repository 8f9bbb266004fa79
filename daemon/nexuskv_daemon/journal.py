"""What a daemon must know to take over the objects of an earlier one, and cannot read in them.

Owns one small file beside the objects: tenants by the number in their objects' names, the descriptors of arenas, and
how far segment numbers are used up. It is replaced whole, so a daemon that dies while writing leaves the old one.

    +--------+----------------------+
    | digest | msgpack of a Journal |    digest: BLAKE2b-128 of the rest
    +--------+----------------------+
"""

import contextlib
import os
from hashlib import blake2b
from pathlib import Path

import msgspec

from nexuskv.errors import StartupError
from nexuskv_daemon import own

VERSION = 1
DIGEST_BYTES = 16


class ArenaLine(msgspec.Struct, array_like=True):
    """A descriptor, in canonical msgpack, and the arena that serves it; several of one form share an arena."""

    number: int
    tenant: str
    descriptor: bytes


class Journal(msgspec.Struct, forbid_unknown_fields=True):
    """Everything; lists only grow. Segments up to number `segments` may have been made."""

    version: int = VERSION
    tenants: dict[str, int] = {}
    arenas: list[ArenaLine] = []
    segments: int = 0


class _Version(msgspec.Struct):
    version: int


def read(path: Path) -> Journal | None:
    """The journal an earlier daemon left, None if there is none. Raises StartupError with what to do."""
    data = own.read(path)
    if data is None:
        return None
    noted = data[DIGEST_BYTES:]
    try:
        _check_digest(data)
        version = msgspec.msgpack.decode(noted, type=_Version).version
        if version == VERSION:
            return msgspec.msgpack.decode(noted, type=Journal)
    except msgspec.DecodeError as error:
        raise StartupError(
            f"{path} is damaged ({error}): start with --fresh, which drops what is cached"
        ) from error
    raise StartupError(
        f"{path} was written by another release (version {version}, this one writes {VERSION}): start that release "
        "once more and stop it, or start with --fresh, which drops what is cached"
    )


def _check_digest(data: bytes) -> None:
    if _digest(data[DIGEST_BYTES:]) != data[:DIGEST_BYTES]:
        raise msgspec.DecodeError("its digest is wrong")


def write(path: Path, journal: Journal) -> None:
    """Replaces the journal. Raises OSError."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = own.create(fresh)
    noted = msgspec.msgpack.encode(journal)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_digest(noted) + noted)
    fresh.replace(path)


def _digest(noted: bytes) -> bytes:
    return blake2b(noted, digest_size=DIGEST_BYTES).digest()


def remove(path: Path) -> None:
    """Removes it, also one that was being written."""
    for name in (path, path.with_name(f"{path.name}.new")):
        with contextlib.suppress(FileNotFoundError):
            name.unlink()
