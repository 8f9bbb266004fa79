"""Memory is registered in chunks; pages that lie across chunks, here or there, arrive whole."""

import os
from pathlib import Path

import numpy as np
import pytest

from nexuskv.errors import LocalError
from nexuskv_transport import Identity, KeyedRegion, Plain, Pull
from nexuskv_transport.checks.pulling import all_ok, pull_all
from tests.softroce.ends import ADDRESS, PAGE, accepting, both, exposed, page_of

MIB = 1 << 20


def admit(_: Identity) -> set[str]:
    return {"a"}


def test_pages_across_chunks() -> None:
    from nexuskv_transport.rdma.transport import RdmaTransport  # noqa: PLC0415  # it imports pyverbs

    content = np.random.default_rng(5).bytes(4 * MIB + 4096)
    with (
        RdmaTransport(ADDRESS, Plain(), chunk_bytes=MIB) as serving,
        RdmaTransport(ADDRESS, Plain(), chunk_bytes=MIB + PAGE) as pulling,
        serving.listen(ADDRESS, admit) as listener,
        accepting(listener),
        exposed(serving, 1, "a", content) as (_, region),
        exposed(pulling, 1, "a", bytes(len(content))) as (into, _),
        pulling.connect(listener.address) as connection,
    ):
        assert isinstance(region, KeyedRegion)
        assert [chunk.nbytes for chunk in region.chunks] == [MIB] * 4 + [4096]
        assert all_ok(pull_all(connection, [Pull(0, region, 100, into[100:])]))
        assert into[100:] == content[100:]


def test_memory_that_is_not_exposed_cannot_be_pulled_into() -> None:
    with (
        both("a") as ends,
        exposed(ends.serving, 1, "a", bytes(PAGE)) as (_, region),
        ends.connect() as connection,
        pytest.raises(LocalError, match="expose"),
    ):
        connection.pull([page_of(region, memoryview(bytearray(PAGE)))], float("inf"))


def test_thousands_of_reads_leave_no_memory_behind() -> None:
    with (
        both("a") as ends,
        exposed(ends.serving, 1, "a", bytes(PAGE)) as (_, region),
        exposed(ends.pulling, 1, "a", bytes(PAGE)) as (into, _),
        ends.connect() as connection,
    ):
        pulls = [Pull(index, region, index * 256, into[index * 256 :][:256]) for index in range(256)]
        assert all_ok(pull_all(connection, pulls))
        before = _resident()
        for _ in range(16):
            assert all_ok(pull_all(connection, pulls))
        assert _resident() - before < MIB


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
