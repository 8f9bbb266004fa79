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
from nexuskv_transport.base import Connection, KeyedRegion, Outcome, Plain, Pull, Region
from nexuskv_transport.checks.far import OURS, REGION_BYTES, SERVED, FarCard, FarOrders, Memory
from nexuskv_transport.extents import address_of
from nexuskv_transport.rdma.channel import parse
from nexuskv_transport.rdma.control import Control, Ready
from nexuskv_transport.rdma.gids import ranked
from nexuskv_transport.rdma.lane import Lane
from nexuskv_transport.rdma.reads import Read
from nexuskv_transport.rdma.regions import Exposed, Regions
from nexuskv_transport.rdma.verbs import Device, devices
from nexuskv_transport.registry import open_transport
from nexuskv_transport.tcp.strand import Dial

MIB = 1 << 20
RDMA, TCP = "rdma://127.0.0.1:0", "tcp://127.0.0.1:0"
SIZES = {"64k": 65536, "1mib": MIB, "4k": 4096}
BATCH = 64
SECONDS = 120.0
SETTLED = 1.5  # seconds until perftest's server listens, also on an emulated machine


class TrialOrders(msgspec.Struct):
    """How often everything is measured, and the MiB of one measurement."""

    runs: int
    mib: int


class Found(msgspec.Struct):
    """One run: MiB/s for pages, CPU milliseconds a GiB for `rdma_cpu_data`."""

    name: str
    value: float
    floor: float


class TrialAnswer(msgspec.Struct):
    """Everything that was found."""

    found: list[Found]


Puller = Callable[[int, int], float]
"""Pulls so many MiB in pages of so many bytes (the first argument), and returns the seconds."""


class Served(NamedTuple):
    """A far end, by its process."""

    pid: int
    card: FarCard


def main() -> None:
    """Orders come on standard input, the answer goes to standard output."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=TrialOrders)
    with _serving(RDMA) as rdma, _serving(TCP) as tcp, contextlib.ExitStack() as stack:
        region = rdma.card.regions[SERVED]
        lane, local, row = stack.enter_context(_lane(rdma.card))
        by_rdma = stack.enter_context(_pulling(RDMA, rdma.card))
        by_tcp = stack.enter_context(_pulling(TCP, tcp.card))
        found: list[Found] = []
        for _ in range(orders.runs):
            for stem, nbytes in SIZES.items():
                mib = orders.mib if nbytes >= 65536 else max(1, orders.mib // 4)
                floor = _perftest(row, nbytes, mib * MIB // nbytes)
                found.append(Found(f"rdma_read_{stem}", mib / _read(lane, region, local, nbytes, mib), floor))
                found.append(Found(f"rdma_pull_{stem}", mib / by_rdma(nbytes, mib), floor))
            found.append(_cpu(orders.mib, rdma.pid, by_rdma, tcp.pid, by_tcp))
    sys.stdout.buffer.write(msgspec.json.encode(TrialAnswer(found)) + b"\n")


def _cpu(mib: int, rdma: int, by_rdma: Puller, tcp: int, by_tcp: Puller) -> Found:
    a_gib = 1024 / mib
    return Found(
        "rdma_cpu_data",
        _cpu_ms(rdma, lambda: by_rdma(MIB, mib)) * a_gib,
        _cpu_ms(tcp, lambda: by_tcp(MIB, mib)) * a_gib,
    )


@contextlib.contextmanager
def _lane(card: FarCard) -> Iterator[tuple[Lane, Exposed, int]]:
    """A lane to the far end, the memory that it may write, and the row of the GID that is used."""
    memory = Memory(REGION_BYTES)
    device = Device(devices()[0])
    regions = Regions(device)
    regions.expose(1, memory.view, OURS)
    control = Control(Dial(parse(card.address), Plain(), None), device, regions, lambda: None)
    control.want(OURS)
    news = control.news.get(timeout=SECONDS)
    if not isinstance(news, Ready):
        raise StartupError(news.sentence)
    try:
        row = ranked(device.entries(), "127.0.0.1")[0].row
        yield news.lane, regions.around(address_of(memory.view), REGION_BYTES), row
    finally:
        news.lane.stop()
        control.close()
        regions.close()
        device.close()
        memory.close()


def _read(lane: Lane, region: Region, local: Exposed, nbytes: int, mib: int) -> float:
    """Seconds for so many MiB in READs of that size, one after another, in chains."""
    assert isinstance(region, KeyedRegion)
    (there,), (here,) = region.chunks, local.local
    offsets = range(0, min(REGION_BYTES, mib * MIB), nbytes)
    reads = [
        Read(0, here.address + at, here.key, there.address + at, there.rkey, nbytes, True) for at in offsets
    ]
    start = time.perf_counter()
    for _ in range(max(1, mib * MIB // REGION_BYTES)):
        lane.offer(reads)
        done = 0
        while done < len(reads) and lane.failure is None:
            select.select([lane.completions.fd], [], [], SECONDS)
            done += len(lane.drain(signalled=True))
    return time.perf_counter() - start


@contextlib.contextmanager
def _pulling(address: str, card: FarCard) -> Iterator[Puller]:
    """Whole pulls from a far end."""
    memory = Memory(REGION_BYTES)
    with open_transport(address) as near:
        near.expose(1, memory.view, fd=memory.fd, tenant=OURS)
        with near.connect(card.address) as connection:
            region = card.regions[SERVED]
            _pulled(connection, region, memory.view, MIB, 32)
            yield lambda nbytes, mib: _pulled(connection, region, memory.view, nbytes, mib)
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


def _perftest(row: int, nbytes: int, count: int) -> float:
    """MiB/s of READs of that size by perftest."""
    command = ["ib_read_bw", "-d", devices()[0], "-x", str(row), "-s", str(nbytes), "-n", str(count), "-F"]
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
