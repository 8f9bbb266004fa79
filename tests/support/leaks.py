"""Tells what a test left behind: shared-memory objects, processes, descriptors.

Owns the before and after of a test and the removal of what should not have stayed. Refuses to know what the
tests do. Objects that a process outside of this test run holds are somebody else's, and left alone.
"""

import contextlib
import ctypes
import os
import re
import signal
import time
from pathlib import Path
from typing import NamedTuple

SHM = Path("/dev/shm")
OF_INSTANCE = re.compile(r"nexuskv-.+-(?=(data|index|touch|pins)-[0-9]+$|journal$|lock$)")
GRACE_SECONDS = 1.0  # for what has been told to end and is still about it
PR_SET_CHILD_SUBREAPER = 36


class Traces(NamedTuple):
    """What this process can leave behind: names in /dev/shm, pids of children, "fd -> target" of its own."""

    objects: frozenset[str]
    children: frozenset[int]
    descriptors: frozenset[str]

    def since(self, before: "Traces") -> "Traces":
        """What is here and was not before."""
        return Traces(
            objects=self.objects - before.objects,
            children=self.children - before.children,
            descriptors=self.descriptors - before.descriptors,
        )


def adopt_orphans() -> None:
    """Make every descendant whose parent died a child of this process, so that none escapes."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def traces() -> Traces:
    """What is here now."""
    return Traces(
        objects=frozenset(path.name for path in SHM.glob("nexuskv-*") if not _of_another_run(path.name)),
        children=frozenset(_children(os.getpid())),
        descriptors=frozenset(_descriptors(os.getpid())),
    )


def left_behind(before: Traces) -> Traces:
    """What came since `before` and is still here after a moment of grace; reaps children that have ended."""
    deadline = time.monotonic() + GRACE_SECONDS
    while True:
        left = traces().since(before)
        left = left._replace(
            objects=frozenset(name for name in left.objects if not _held_by_others(name)),
            children=frozenset(pid for pid in left.children if not _reaped(pid)),
        )
        if not any(left) or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def remove(left: Traces) -> None:
    """End the processes and unlink the objects; descriptors stay, for only their owner can close them."""
    for pid in left.children:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for name in left.objects:
        (SHM / name).unlink(missing_ok=True)


def describe(left: Traces) -> str:
    """One line a leak, fit for a failure message."""
    lines = [f"shared-memory object /{name}" for name in sorted(left.objects)]
    lines += [f"process {pid}: {_command(pid)}" for pid in sorted(left.children)]
    lines += [f"descriptor {descriptor}" for descriptor in sorted(left.descriptors)]
    return "\n".join(lines)


def _of_another_run(name: str) -> bool:
    """Whether a daemon that tests started bears the number of another process than this one (`support.daemon`)."""
    named = re.match(r"nexuskv-test-([0-9]+)-", name)
    return named is not None and int(named[1]) != os.getpid()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError):  # the process ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, _read(task / "children").split())
    return found


def _descriptors(pid: int) -> list[str]:
    found: list[str] = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # The descriptor that lists this very folder is gone by now.
        with contextlib.suppress(FileNotFoundError):
            found.append(f"{link.name} -> {link.readlink()}")
    return found


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


def _held_by_others(name: str) -> bool:
    """Whether somebody else's process holds it, or another object of the same instance: nobody has all of them open."""
    ours, instance = _family(os.getpid()), OF_INSTANCE.match(name)
    path = f"/dev/shm/{instance[0] if instance else name}"
    return any(pid not in ours and _holds(pid, path) for pid in map(int, _pids()))


def _family(pid: int) -> set[int]:
    return {pid}.union(*map(_family, _children(pid)))


def _pids() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _holds(pid: int, path: str) -> bool:
    if path in _read(Path(f"/proc/{pid}/maps")):
        return True
    with contextlib.suppress(OSError):
        return any(path in descriptor for descriptor in _descriptors(pid))
    return False


def _command(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip() or "?"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
