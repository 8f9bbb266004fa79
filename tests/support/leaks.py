"""Tells what a test left behind: shared-memory objects, processes, descriptors.

Owns the before and after of a test and the removal of what should not have stayed. Refuses to know what the
tests do. Objects are this run's that bear the number of its process (`nexuskv-test-<pid>-...`) or that a descendant
holds; all others may be another run's or a daemon's at work, and are left alone.
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
OF_PROCESS = re.compile(r"nexuskv-[a-z]+-([0-9]+)-")
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
    names = {path.name for path in SHM.glob("nexuskv-*")}
    ours = {name for name in names if _numbered(name, os.getpid())}
    return Traces(
        objects=frozenset(ours | _held(names - ours)),
        children=frozenset(_children(os.getpid())),
        descriptors=frozenset(_descriptors(os.getpid())),
    )


def left_behind(before: Traces) -> Traces:
    """What came since `before` and is still here after a moment of grace; reaps children that have ended."""
    deadline = time.monotonic() + GRACE_SECONDS
    while True:
        left = traces().since(before)
        left = left._replace(children=frozenset(pid for pid in left.children if not _reaped(pid)))
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


def _numbered(name: str, pid: int) -> bool:
    """Whether what made it bears the number of process `pid` in its instance's name."""
    named = OF_PROCESS.match(name)
    return named is not None and int(named[1]) == pid


def _held(names: set[str]) -> set[str]:
    """Those that descendants have open or mapped, and those of a descendant's number."""
    if not names:
        return set()
    family = _descendants(os.getpid())
    return {name for name in names if any(_numbered(name, pid) or _holds(pid, name) for pid in family)}


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


def _descendants(pid: int) -> set[int]:
    children = _children(pid)
    return set(children).union(*map(_descendants, children))


def _holds(pid: int, name: str) -> bool:
    path = str(SHM / name)
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
