"""The suite `rdma`: pages by RDMA READ, against perftest on the same device.

Owns what is promised, and the sentence for a host that cannot run it. What measures READs and pulls is a process of the
transport; what serving costs is measured with daemons.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.serving import serving_daemon
from nexuskv.bench.suite import Effort, Suite, Tell
from nexuskv.errors import StartupError

PERFTEST = "ib_read_bw"
DEVICES = Path("/sys/class/infiniband")
TRIAL = "nexuskv_transport.rdma.trial"
MIB = 64
SERVED_MIB, SERVED_TIMES = 384, 3
"""More than 1 GiB: so much at once is more than an emulated machine has for three daemons."""
AGAINST = "against perftest's ib_read_bw of the same size over the same device"
SOFT = "The device is a soft-RoCE one: these figures speak of this code, and not of RDMA hardware."

DEFINITIONS = (
    Definition("rdma_read_64k", "MiB/s", ">=", 0.9, f"READs of 64 KiB as a lane posts them, {AGAINST}"),
    Definition("rdma_read_1mib", "MiB/s", ">=", 0.9, f"READs of 1 MiB, {AGAINST}"),
    Definition("rdma_read_4k", "MiB/s", ">=", 0.8, f"READs of 4 KiB in chains, {AGAINST}"),
    Definition("rdma_pull_64k", "MiB/s", ">=", None, f"whole pulls of 64 KiB, booked one by one, {AGAINST}"),
    Definition("rdma_pull_1mib", "MiB/s", ">=", None, f"whole pulls of 1 MiB, {AGAINST}"),
    Definition("rdma_pull_4k", "MiB/s", ">=", None, f"whole pulls of 4 KiB, {AGAINST}"),
    Definition(
        "rdma_cpu",
        "ms/GiB",
        "<=",
        0.05,
        "CPU of a serving daemon while another pulls 1 GiB of pages of 1 MiB, against the same over TCP",
    ),
    Definition(
        "rdma_cpu_data",
        "ms/GiB",
        "<=",
        None,
        "likewise, of a process that serves and has nothing to say to its peer",
    ),
)


class Orders(msgspec.Struct):
    """What the measuring process is told."""

    runs: int
    mib: int


class Found(msgspec.Struct):
    """A run's reading of one figure."""

    name: str
    value: float
    floor: float


class Answer(msgspec.Struct):
    """What the measuring process answers."""

    found: list[Found]


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Raises StartupError where there is no device, no perftest or no pyverbs."""
    _check_host()
    tell(f"{effort.runs} runs")
    orders = msgspec.json.encode(Orders(effort.runs, effort.pick(MIB, 8)))
    ended = subprocess.run(
        [sys.executable, "-m", TRIAL], input=orders + b"\n", capture_output=True, check=False
    )
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        raise StartupError(f"RDMA cannot be measured here: {lines[-1] if lines else 'it said nothing'}")
    for each in msgspec.json.decode(ended.stdout, type=Answer).found:
        readings.add(each.name, None, each.value, each.floor)
    _measure_serving(effort, readings, tell)
    if any((device / "parent").exists() for device in DEVICES.iterdir()):
        readings.notes.append(SOFT)


def _measure_serving(effort: Effort, readings: Readings, tell: Tell) -> None:
    tell("CPU of a serving daemon")
    with serving_daemon(effort.pick(SERVED_MIB, 8), effort.pick(SERVED_TIMES, 1)) as measured:
        for _ in range(effort.runs):
            cost = measured()
            readings.add("rdma_cpu", None, cost.rdma, cost.tcp)


def _check_host() -> None:
    if not DEVICES.exists() or not any(DEVICES.iterdir()):
        raise StartupError(
            "suite rdma needs an RDMA device, and this host has none: in a checkout, `make rdma` runs it in an emulated"
            " machine that has a soft-RoCE one"
        )
    if shutil.which(PERFTEST) is None:
        raise StartupError(f"suite rdma needs {PERFTEST}: install perftest")


SUITE = Suite("rdma", "pages by RDMA READ between two processes of one host", DEFINITIONS, measure)
