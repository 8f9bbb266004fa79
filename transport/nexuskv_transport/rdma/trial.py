"""Measures RDMA READ on this host's device: a process that is told how much to do, and answers what it found.

Owns its far end, a process as the conformance suite has it, and the floors: perftest's ib_read_bw over the same device,
by turns with what it is the floor of. Knows nothing of bounds and reports.
"""

import contextlib
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec

from nexuskv.errors import StartupError
from nexuskv_transport.base import Connection, Outcome, Pull, Region
from nexuskv_transport.checks.far import OURS, REGION_BYTES, SERVED, FarCard, FarOrders, Memory
from nexuskv_transport.rdma.gids import ranked
from nexuskv_transport.rdma.verbs import Device, devices
from nexuskv_transport.registry import open_transport

MIB = 1 << 20
RDMA, TCP = "rdma://127.0.0.1:0", "tcp://127.0.0.1:0"
SIZES = {"rdma_read_64k": 65536, "rdma_read_1mib": MIB, "rdma_read_4k": 4096}
BATCH = 64
SECONDS = 120.0
SETTLED = 1.5  # seconds until perftest's server listens, also on an emulated machine


class TrialOrders(msgspec.Struct):
    """How often everything is measured, and the MiB of one measurement."""

    runs: int
    mib: int


class Found(msgspec.Struct):
    """One run: MiB/s for pages, CPU milliseconds a GiB for `rdma_cpu`."""

    name: str
    value: float
    floor: float


class TrialAnswer(msgspec.Struct):
    """Everything that was found."""

    found: list[Found]


class Served(NamedTuple):
    """A far end, by its process."""

    pid: int
    card: FarCard


def main() -> None:
    """Orders come on standard input, the answer goes to standard output."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=TrialOrders)
    found = [each for _ in range(orders.runs) for each in _run(orders.mib)]
    sys.stdout.buffer.write(msgspec.json.encode(TrialAnswer(found)) + b"\n")


def _run(mib: int) -> Iterator[Found]:
    device = Device(devices()[0])
    row = ranked(device.entries(), "127.0.0.1")[0].row
    device.close()
    with _pulling(RDMA) as (pull, served):
        for name, nbytes in SIZES.items():
            share = mib if nbytes >= 65536 else max(1, mib // 4)
            floor = _perftest(devices()[0], row, nbytes, share * MIB // nbytes)
            yield Found(name, share / pull(nbytes, share), floor)
        rdma = _cpu_ms(served.pid, lambda: pull(MIB, mib)) * 1024 / mib
    with _pulling(TCP) as (pull, served):
        tcp = _cpu_ms(served.pid, lambda: pull(MIB, mib)) * 1024 / mib
    yield Found("rdma_cpu", rdma, tcp)


@contextlib.contextmanager
def _pulling(address: str) -> Iterator[tuple[Callable[[int, int], float], Served]]:
    """A function of page bytes and MiB that pulls them and returns the seconds; and who serves it."""
    with _serving(address) as served, open_transport(address) as near:
        memory = Memory(REGION_BYTES)
        near.expose(1, memory.view, fd=memory.fd, tenant=OURS)
        with near.connect(served.card.address) as connection:
            region = served.card.regions[SERVED]
            _pulled(connection, region, memory.view, MIB, 32)
            yield lambda nbytes, mib: _pulled(connection, region, memory.view, nbytes, mib), served
        near.withdraw(1)
        memory.close()


def _pulled(connection: Connection, region: Region, into: memoryview, nbytes: int, mib: int) -> float:
    offsets = range(0, min(REGION_BYTES, mib * MIB), nbytes)
    pages = [Pull(index, region, at, into[at : at + nbytes]) for index, at in enumerate(offsets)]
    start = time.perf_counter()
    for _ in range(max(1, mib * MIB // REGION_BYTES)):
        _all(connection, pages)
    return time.perf_counter() - start


def _all(connection: Connection, pages: Sequence[Pull]) -> None:
    deadline = time.monotonic() + SECONDS
    offered = done = 0
    while done < len(pages):
        if offered < len(pages):
            offered += connection.pull(pages[offered : offered + BATCH], deadline)
        select.select([connection], [], [], SECONDS)
        ended = connection.completed()
        done += len(ended)
        if any(each.outcome is not Outcome.OK for each in ended):
            raise StartupError(f"pulls fail while they are measured: {connection.ended}")


@contextlib.contextmanager
def _serving(address: str) -> Iterator[Served]:
    with subprocess.Popen(
        [sys.executable, "-m", "nexuskv_transport.checks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        orders, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        orders.write(msgspec.json.encode(FarOrders(address)) + b"\n")
        orders.flush()
        try:
            yield Served(process.pid, msgspec.json.decode(answers.readline(), type=FarCard))
        finally:
            process.kill()


def _cpu_ms(pid: int, work: Callable[[], object]) -> float:
    """Milliseconds on a CPU, of all threads of a process."""
    before = _on_cpu_ns(pid)
    work()
    return (_on_cpu_ns(pid) - before) / 1e6


def _on_cpu_ns(pid: int) -> int:
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def _perftest(device: str, row: int, nbytes: int, count: int) -> float:
    """MiB/s of READs of that size by perftest."""
    command = ["ib_read_bw", "-d", device, "-x", str(row), "-s", str(nbytes), "-n", str(count), "-F"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            time.sleep(SETTLED)
            done = subprocess.run(
                [*command, "127.0.0.1"], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        finally:
            server.kill()
    line = re.search(rf"^\s*{nbytes}\s+\d+\s+[\d.]+\s+([\d.]+)", done.stdout, re.MULTILINE)
    if line is None:
        raise StartupError(
            f"ib_read_bw of perftest does not work: {(done.stderr or done.stdout).strip()[-300:]}"
        )
    return float(line[1])


if __name__ == "__main__":
    main()
