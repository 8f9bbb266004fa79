"""Runs a command in one emulated machine that has a soft-RoCE device, or in two of them on one wire.

Owns the emulators and their end: none outlives this process, however it ends. Refuses to know what the commands do. A
guest sees the host's root read-only, in the same folder, and shares one folder of its own with the host: `/job`.
"""

import contextlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.softroce.machine import HERE, PYVERBS, RAMDISK, VMLINUX, prepare

STEP = 0.05
KERNEL_LINE = (
    "console=ttyS0 panic=-1 mitigations=off nokaslr quiet loglevel=4 tsc=reliable random.trust_cpu=on"
)
PAUSE = (
    "pause"  # a file that a guest writes into /job: stop the machine of the other guest for so many seconds
)


class Host(NamedTuple):
    """A guest's place: its network device and address. Alone it has a dummy device, two have the ends of a wire."""

    name: str
    link: str
    address: str
    cpus: int = 1


ALONE = Host("alone", "dummy0", "10.77.0.1")
MEASURED = Host("measured", "dummy0", "10.77.0.1", cpus=2)
"""What is measured runs beside the device's work, as it would on a host that has a device."""
FIRST = Host("first", "eth0", "10.77.0.1")
SECOND = Host("second", "eth0", "10.77.0.2")


class Ended(NamedTuple):
    """What a command left: its exit code (None when the guest died or was out of time) and all it printed."""

    status: int | None
    output: str


def run_alone(command: Sequence[str], job: Path, seconds: float, host: Host = ALONE) -> Ended:
    """Runs a command in one guest that shares the folder `job`; within `seconds`, boot included."""
    prepare()
    with _booted(host, command, job, wire=job) as guest:
        guest.wait(time.monotonic() + seconds)
    return guest.ended()


def run_pair(first: Sequence[str], second: Sequence[str], job: Path, seconds: float) -> tuple[Ended, Ended]:
    """Runs a command in each of two guests on one wire; when the first one's is over, so is the second one's.

    `job` is shared with the first. The first may have the second stopped for a while (`PAUSE`).
    """
    prepare()
    with (
        _folder() as other,
        _booted(SECOND, second, other, wire=other) as b,
        _booted(FIRST, first, job, wire=other) as a,
    ):
        a.wait(time.monotonic() + seconds, other=b)
    return a.ended(), b.ended()


class _Guest:
    def __init__(self, host: Host, job: Path, wire: Path) -> None:
        self._job = job
        # The kernel ends the emulator with this process, even when this one is killed.
        line = ["setpriv", "--pdeathsig", "KILL", *_machine(host, job)]
        with (job / "emulator").open("w") as log:
            self._process = subprocess.Popen(line, cwd=wire, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self, deadline: float, other: "_Guest | None" = None) -> None:
        """Returns when the guest has powered off, or at the deadline (time.monotonic)."""
        while self._process.poll() is None and time.monotonic() < deadline:
            if other and (self._job / PAUSE).exists():
                seconds = float((self._job / PAUSE).read_text())
                (self._job / PAUSE).unlink()
                other.pause(seconds)
            time.sleep(STEP)

    def pause(self, seconds: float) -> None:
        """Stops the whole machine, as a hypervisor may."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def ended(self) -> Ended:
        status, output = self._job / "status", self._job / "output"
        if status.exists():
            return Ended(int(status.read_text()), output.read_text(errors="replace"))
        said = [self._job / name for name in ("emulator", "console", "output")]
        text = "\n".join(path.read_text(errors="replace")[-4000:] for path in said if path.exists())
        return Ended(None, text)


@contextlib.contextmanager
def _booted(host: Host, command: Sequence[str], job: Path, wire: Path) -> Iterator[_Guest]:
    settings = {"NAME": host.name, "LINK": host.link, "ADDRESS": host.address, "FOLDER": str(Path.cwd())}
    (job / "settings").write_text("".join(f"{key}={shlex.quote(value)}\n" for key, value in settings.items()))
    known = {"PYTHONPATH": str(PYVERBS), "NEXUSKV_GUEST": host.name}
    (job / "command").write_text(
        "".join(f"export {key}={shlex.quote(value)}\n" for key, value in known.items()) + shlex.join(command)
    )
    shutil.copy(HERE / "guest" / "job.sh", job)
    guest = _Guest(host, job, wire)
    try:
        yield guest
    finally:
        guest.end()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nexuskv-softroce-") as folder:
        yield Path(folder)


def _machine(host: Host, job: Path) -> list[str]:
    """The emulator's command line. qemu64 and these features are the fastest CPU that numpy runs on."""
    line = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-smp", str(host.cpus), "-m", "4G"]
    line += ["-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt", "-nodefaults", "-no-user-config", "-no-reboot"]
    line += ["-display", "none", "-serial", f"file:{job / 'console'}"]
    line += ["-kernel", str(VMLINUX), "-initrd", str(RAMDISK), "-append", KERNEL_LINE]
    for tag, path, access in (("root", "/", ",readonly=on,multidevs=remap"), ("job", str(job), "")):
        line += ["-fsdev", f"local,id={tag},path={path},security_model=none{access}"]
        line += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return line + (_wire(host) if host.link == "eth0" else [])


def _wire(host: Host) -> list[str]:
    """Ethernet frames as datagrams between two sockets, named within the pair's folder (a path may have 107 bytes)."""
    ends = (FIRST, SECOND) if host is FIRST else (SECOND, FIRST)
    ours, theirs = (f"{end.name}.net" for end in ends)
    mac = f"52:54:00:77:00:0{host.address[-1]}"
    return [
        "-netdev",
        f"dgram,id=wire,local.type=unix,local.path={ours},remote.type=unix,remote.path={theirs}",
        "-device",
        f"virtio-net-pci,netdev=wire,romfile=,mac={mac}",
    ]
