"""What this machine allows the daemon: free tmpfs, the memory limits of its control groups, open descriptors.

Owns the reading of those limits, the budget taken when none is given and the refusal of one that cannot be
kept, with the numbers and the way out. Refuses to know how the budget is spent: reserving each segment stays
the arenas' task, for others fill the same tmpfs meanwhile.
"""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nexuskv.errors import StartupError
from nexuskv.quantity import format_size

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
# A quarter of a container's usual /dev/shm of 64 MiB would hold a handful of pages: take this much there.
SMALLEST_DEFAULT = 32 * MIB


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the limits are read: the tmpfs, the mount point of the control groups, and procfs."""

    shm: Path = Path("/dev/shm")
    cgroups: Path = Path("/sys/fs/cgroup")
    proc: Path = Path("/proc")


@dataclass(frozen=True, slots=True)
class Headroom:
    """What one control group leaves: its limit and its use in bytes, without reclaimable file cache."""

    cgroup: Path
    limit: int
    used: int

    @property
    def free(self) -> int:
        """Bytes that may still be touched before the kernel's out-of-memory killer comes; never negative."""
        return max(self.limit - self.used, 0)


@dataclass(frozen=True, slots=True)
class _Controller:
    """How a version of the control-group interface spells the memory limit."""

    limits: tuple[str, ...]
    usage: str
    reclaimable: str  # the line of memory.stat


_V1 = _Controller(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
# memory.high does not kill, but throttles whoever is above it to a crawl.
_V2 = _Controller(("memory.max", "memory.high"), "memory.current", "inactive_file")
_UNLIMITED = 1 << 62  # version 1 says "no limit" with LONG_MAX rounded down to a page; version 2 says "max"

HOST = Machine()


def shm_free(machine: Machine = HOST) -> int:
    """Bytes that the tmpfs of shared memory can still take; StartupError if there is none."""
    stat = _statvfs(machine)
    if stat.f_blocks == 0:  # mounted with size=0: bounded by memory alone
        return memory_available(machine)
    return stat.f_bavail * stat.f_frsize


def _statvfs(machine: Machine) -> os.statvfs_result:
    try:
        return os.statvfs(machine.shm)
    except OSError as error:
        raise StartupError(
            f"no shared memory: {machine.shm}: {error.strerror}; mount a tmpfs there"
        ) from error


def memory_available(machine: Machine = HOST) -> int:
    """Bytes of physical memory that can be had without swapping (MemAvailable of proc(5))."""
    fields = dict(line.split(":", 1) for line in _lines(machine.proc / "meminfo"))
    return int(fields["MemAvailable"].split()[0]) * 1024


def cgroup_headroom(machine: Machine = HOST) -> Headroom | None:
    """The tightest memory limit of this process's control group and those above it; None if there is none."""
    found = (
        headroom
        for controller, root, group in _memory_groups(machine)
        for directory in _upwards(root, group)
        if (headroom := _headroom(controller, directory)) is not None
    )
    return min(found, key=lambda headroom: headroom.free, default=None)


def _memory_groups(machine: Machine) -> Iterator[tuple[_Controller, Path, str]]:
    # Lines of /proc/self/cgroup (cgroups(7)): "0::/group" is version 2, "4:cpu,memory:/group" version 1.
    unified = machine.cgroups / "unified"  # where version 2 is mounted beside version 1
    for line in _lines(machine.proc / "self" / "cgroup"):
        hierarchy, controllers, group = line.split(":", 2)
        if hierarchy == "0":
            yield _V2, unified if unified.is_dir() else machine.cgroups, group
        elif "memory" in controllers.split(","):
            yield _V1, machine.cgroups / "memory", group


def _upwards(root: Path, group: str) -> Iterator[Path]:
    # In a container the path can be the host's, of which only the root is mounted: skip what is not there.
    directory = root / group.lstrip("/")
    yield directory
    while directory != root:
        directory = directory.parent
        yield directory


def _headroom(controller: _Controller, directory: Path) -> Headroom | None:
    limits = [_count(directory / name) for name in controller.limits]
    limit = min((n for n in limits if n is not None), default=_UNLIMITED)
    used = _count(directory / controller.usage)
    if limit >= _UNLIMITED or used is None:
        return None
    stat = dict(line.split(" ", 1) for line in _lines(directory / "memory.stat"))
    return Headroom(directory, limit, max(used - int(stat.get(controller.reclaimable, "0")), 0))


def _count(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # no such control group here, or it went away
        return []


def check_budget(nbytes: int, machine: Machine = HOST, *, held: int = 0) -> None:
    """Raise StartupError, with the numbers and the way out, if `nbytes` of shared memory cannot be had.

    An earlier daemon, whose objects are taken over, holds `held` of them already.
    """
    free = shm_free(machine) + held
    if nbytes > free:
        raise StartupError(_shm_too_small(nbytes, free, machine))
    tightest = cgroup_headroom(machine)
    if tightest is not None and nbytes > tightest.free + held:
        raise StartupError(_cgroup_too_small(nbytes, tightest, held))


def _shm_too_small(nbytes: int, free: int, machine: Machine) -> str:
    stat = _statvfs(machine)
    enough = stat.f_blocks * stat.f_frsize - free + nbytes
    return (
        f"--memory asks for {format_size(nbytes)}, {machine.shm} has {format_size(free)} free: "
        f"{_take_less(free)}, or enlarge it (mount -o remount,size={-(-enough // MIB)}M {machine.shm}; "
        "for a container --shm-size)"
    )


def _cgroup_too_small(nbytes: int, tightest: Headroom, held: int) -> str:
    free = tightest.free + held
    return (
        f"--memory asks for {format_size(nbytes)}, the memory limit of control group {tightest.cgroup} "
        f"leaves {format_size(free)} ({format_size(tightest.limit)}, of which "
        f"{format_size(tightest.used - held)} are used): {_take_less(free)}, or raise the limit "
        "(MemoryMax= of the unit, --memory of the container)"
    )


def _take_less(free: int) -> str:
    return f"take --memory {free >> 20}MiB or less" if free >= MIB else "free some of it"


def default_budget(machine: Machine = HOST) -> int:
    """Bytes to take when none are asked for: a quarter of what is free, more than that where little is.

    A multiple of the page size. Raises StartupError if there is not even one page to be had.
    """
    tightest = cgroup_headroom(machine)
    bounds = [shm_free(machine), memory_available(machine)] + ([tightest.free] if tightest else [])
    free = min(bounds)
    budget = max(free // 4, min(SMALLEST_DEFAULT, free // 2)) // PAGE * PAGE
    if budget == 0:
        raise StartupError(
            f"no shared memory to be had: {machine.shm} has {format_size(bounds[0])} free, the memory limits "
            f"leave {format_size(min(bounds[1:]))}; remove what fills {machine.shm}, or enlarge it"
        )
    return budget


def raise_nofile() -> int:
    """Raise the soft limit of open descriptors to the hard one; returns the limit now in force.

    Each session and each segment holds a few descriptors, and the usual soft limit of 1,024 is for select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
