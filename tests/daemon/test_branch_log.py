"""The log of published branches: what was written down is read back, wherever the daemon died."""

import contextlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexuskv.errors import ArenaFull, StartupError
from nexuskv_daemon import branch_log
from nexuskv_daemon.branch_log import SPARE_RECORDS, BranchLogFile
from nexuskv_daemon.core.branch import BranchLine


def line(number: int, tokens: int = 4) -> BranchLine:
    return BranchLine(number, 0, 0, 1, b"r" * 32, b"t" * 32, tokens, b"\1\0\0\0", 0, True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(path: Path) -> Iterator[BranchLogFile]:
    log = BranchLogFile(path)
    yield log
    log.close(keep=True)


def test_where_nothing_was_published_there_is_no_file(path: Path, log: BranchLogFile) -> None:
    assert branch_log.read(path) == []
    log.close(keep=False)
    assert not list(path.parent.iterdir())


def test_the_last_word_on_each_branch_counts(path: Path, log: BranchLogFile) -> None:
    log.note([line(1), line(2), line(3)])
    log.amend([line(2, 9)], [3])
    assert branch_log.read(path) == [line(1), line(2, 9)]


def test_a_daemon_that_takes_over_goes_on_with_it(path: Path, log: BranchLogFile) -> None:
    log.note([line(1), line(2)])
    successor = BranchLogFile(path, branch_log.read(path))
    successor.amend([], [1])
    successor.note([line(3)])
    successor.close(keep=True)
    assert branch_log.read(path) == [line(2), line(3)]


def test_a_change_costs_the_same_however_many_branches_there_are(path: Path, log: BranchLogFile) -> None:
    log.note([line(number) for number in range(10_000)])
    before = path.stat()
    log.note([line(10_000)])
    after = path.stat()
    assert after.st_ino == before.st_ino
    assert after.st_size - before.st_size < 200


def test_it_stays_as_short_as_what_counts(path: Path, log: BranchLogFile) -> None:
    for number in range(5 * SPARE_RECORDS):
        log.note([line(number)])
        log.amend([], [number])
    log.note([line(7)])
    assert path.stat().st_size < 200 * (SPARE_RECORDS + 10)
    assert branch_log.read(path) == [line(7)]
    assert [each.name for each in path.parent.iterdir()] == ["log"]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(1, 300), junk=st.binary(max_size=40))
def test_what_was_being_written_is_dropped_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    path = tmp_path_factory.mktemp("torn") / "log"
    log = BranchLogFile(path)
    log.note([line(1), line(2)])
    whole = path.stat().st_size
    log.note([line(3)])
    torn = path.stat().st_size - whole
    path.write_bytes(path.read_bytes()[: whole + cut % torn] + junk)
    log.close(keep=True)

    lines = branch_log.read(path)
    assert lines == [line(1), line(2)]
    successor = BranchLogFile(path, lines)
    successor.note([line(4)])
    successor.close(keep=True)
    assert branch_log.read(path) == [line(1), line(2), line(4)]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "log"
    path.write_bytes(data)
    with contextlib.suppress(StartupError):
        branch_log.read(path)


@pytest.mark.parametrize("record", [("branches", 2), ("branches",), "branches", 7], ids=repr)
def test_a_log_of_another_release_is_refused(path: Path, log: BranchLogFile, record: object) -> None:
    log.note([line(1)])
    header = framed(("branches", 1))
    data = path.read_bytes()
    assert data.startswith(header)
    path.write_bytes(framed(record) + data[len(header) :])
    with pytest.raises(StartupError, match="another release"):
        branch_log.read(path)


def test_a_record_of_another_release_is_refused(path: Path, log: BranchLogFile) -> None:
    log.note([line(1)])
    with path.open("ab") as file:
        file.write(framed(("renamed", 1)))
    with pytest.raises(StartupError, match="another release"):
        branch_log.read(path)


def framed(record: object) -> bytes:
    """Drawn in `branch_log`: length, digest, payload."""
    payload = msgspec.msgpack.encode(record)
    return len(payload).to_bytes(4, "little") + blake2b(payload, digest_size=16).digest() + payload


def test_where_it_cannot_be_written_nothing_counts(path: Path, log: BranchLogFile) -> None:
    path.parent.joinpath("log.new").mkdir()  # in the way of the new file
    with pytest.raises(ArenaFull, match="cannot write"):
        log.note([line(1)])
    log.amend([line(2)], [])
    path.parent.joinpath("log.new").rmdir()
    log.note([line(3)])
    assert branch_log.read(path) == [line(2), line(3)]
