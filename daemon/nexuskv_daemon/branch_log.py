"""The branches that outlive a daemon, written down as they change.

Owns one file beside the objects. It grows by a record for every change, so that a change costs the same however many
branches there are; once most of it is out of date it is replaced by a new one. What a daemon was writing when it died
is a torn tail, which is dropped: nobody was told yet that it counts.

    +--------+--------+---------+--------+--------+---------+--    length: of the payload, u32 little-endian
    | length | digest | payload | length | digest | payload | ...   digest: BLAKE2b-128 of the payload
    +--------+--------+---------+--------+--------+---------+--    payload: msgpack of a Header first, then of records
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from nexuskv.errors import ArenaFull, StartupError
from nexuskv_daemon import own
from nexuskv_daemon.core.branch import BranchLine

log = logging.getLogger(__name__)
VERSION = 1
LENGTH_BYTES, DIGEST_BYTES = 4, 16
SPARE_RECORDS = 1024
"""A log is replaced when it has more than this and twice the records that count."""


class Header(msgspec.Struct, array_like=True, frozen=True, tag="branches"):
    """What every log begins with."""

    version: int = VERSION


class Gone(msgspec.Struct, array_like=True, frozen=True, tag="gone"):
    """These branches left."""

    numbers: list[int]


Record = BranchLine | Gone
_decoder = msgspec.msgpack.Decoder(Record)
_version = msgspec.msgpack.Decoder(tuple[str, int])


class BranchLogFile:
    """The log of one instance, made when the first branch is published."""

    def __init__(self, path: Path, known: list[BranchLine] | None = None) -> None:
        """With the lines of an earlier daemon, goes on with those that `read` gave."""
        self._path = path
        self._file: int | None = None
        self._end = 0
        self._records = 0
        self._stale = False
        self._lines = {line.number: _framed(line) for line in known or ()}

    def note(self, lines: list[BranchLine]) -> None:
        """Writes lines down. Raises ArenaFull, and then none of them counts."""
        before = {line.number: self._lines.get(line.number) for line in lines}
        self._lines.update((line.number, _framed(line)) for line in lines)
        try:
            self._write(b"".join(self._lines[line.number] for line in lines), len(lines))
        except OSError as error:
            for number, framed in before.items():
                self._restore(number, framed)
            raise ArenaFull(f"cannot write {self._path}: {error.strerror}") from error

    def amend(self, lines: list[BranchLine], gone: list[int]) -> None:
        """Writes changes down; when that fails, the next write makes up for it."""
        self._lines.update((line.number, _framed(line)) for line in lines)
        for number in gone:
            self._lines.pop(number, None)
        changes = [self._lines[line.number] for line in lines] + ([_framed(Gone(gone))] if gone else [])
        try:
            self._write(b"".join(changes), len(changes))
        except OSError as error:
            self._stale = True
            log.warning("cannot write %s (%s): tried again with the next change", self._path, error.strerror)

    def close(self, *, keep: bool) -> None:
        """Lets go of the file, and without `keep` removes it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if not keep:
            remove(self._path)

    def _restore(self, number: int, framed: bytes | None) -> None:
        if framed is None:
            del self._lines[number]
        else:
            self._lines[number] = framed

    def _write(self, changes: bytes, count: int) -> None:
        # At the end that is known to be good: what a write that failed left there is overwritten, or a torn tail.
        if self._file is None or self._stale or self._records > 2 * len(self._lines) + SPARE_RECORDS:
            self._replace()
            return
        _write_all(self._file, changes, self._end)
        self._end += len(changes)
        self._records += count

    def _replace(self) -> None:
        """Writes all lines anew, into a file that takes the old one's place when it is whole."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        everything = b"".join((_framed(Header()), *self._lines.values()))
        descriptor = own.create(fresh)
        try:
            _write_all(descriptor, everything, 0)
            fresh.replace(self._path)
        except BaseException:
            os.close(descriptor)
            fresh.unlink(missing_ok=True)
            raise
        if self._file is not None:
            os.close(self._file)
        self._file, self._end, self._records, self._stale = (
            descriptor,
            len(everything),
            len(self._lines),
            False,
        )


def read(path: Path) -> list[BranchLine]:
    """The branches that an earlier daemon wrote down. Raises StartupError for a log of another release."""
    data = own.read(path)
    if data is None:
        return []
    lines: dict[int, BranchLine] = {}
    payloads = _payloads(data)
    _check_version(path, next(payloads, None))
    for payload in payloads:
        record = _record(path, payload)
        if isinstance(record, Gone):
            for number in record.numbers:
                lines.pop(number, None)
        else:
            lines[record.number] = record
    return list(lines.values())


def remove(path: Path) -> None:
    """Removes it, also one that was being written."""
    for name in (path, path.with_name(f"{path.name}.new")):
        name.unlink(missing_ok=True)


def _check_version(path: Path, header: bytes | None) -> None:
    version: object = None
    with contextlib.suppress(msgspec.DecodeError):
        version = _version.decode(header)[1] if header is not None else VERSION
    if version != VERSION:
        raise _foreign(path, f"version {version}, this one writes {VERSION}")


def _record(path: Path, payload: bytes) -> Record:
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise _foreign(path, str(error)) from error


def _foreign(path: Path, why: str) -> StartupError:
    return StartupError(
        f"{path} was written by another release ({why}): start that release once more and stop it, or start with "
        "--fresh, which drops what is cached"
    )


def _payloads(data: bytes) -> Iterator[bytes]:
    """Whole records from the start on; the first that is torn ends them."""
    at = 0
    while at + LENGTH_BYTES + DIGEST_BYTES <= len(data):
        start = at + LENGTH_BYTES + DIGEST_BYTES
        stop = start + int.from_bytes(data[at : at + LENGTH_BYTES], "little")
        payload = data[start:stop]
        if stop > len(data) or _digest(payload) != data[at + LENGTH_BYTES : start]:
            break
        yield payload
        at = stop
    if at < len(data):
        log.warning(
            "dropped %d bytes at the end of the branch log, which its daemon did not finish", len(data) - at
        )


def _framed(record: Record | Header) -> bytes:
    payload = msgspec.msgpack.encode(record)
    return len(payload).to_bytes(LENGTH_BYTES, "little") + _digest(payload) + payload


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=DIGEST_BYTES).digest()


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    """All of it, or OSError: a tmpfs that runs full takes a part first."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written
