"""Says whether memory lies in a mapped shared segment, as the kernel's own map of this process tells.

Owns reading /proc/PID/maps and /proc/PID/status. Knows nothing of pages or of the client library, on
purpose: this is the witness that a hit was read in place.
"""

from bisect import bisect_right
from pathlib import Path

import numpy as np
import numpy.typing as npt


class Witness:
    """Shared mappings of one instance's segments in this process; read anew for an unknown address."""

    def __init__(self, instance: str) -> None:
        self._mark = f"/nexuskv-{instance}-"
        self._starts: list[int] = []
        self._ends: list[int] = []

    def in_place(self, array: npt.NDArray[np.generic]) -> bool:
        """True when all bytes of a contiguous array lie in one shared mapping of a segment."""
        first = array.__array_interface__["data"][0]
        if not self._covers(first, first + array.nbytes):
            self._look()
        return self._covers(first, first + array.nbytes)

    def _covers(self, first: int, end: int) -> bool:
        place = bisect_right(self._starts, first) - 1
        return place >= 0 and end <= self._ends[place]

    def _look(self) -> None:
        rows = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
        mapped = [row[0] for row in rows if len(row) == 6 and row[1].endswith("s") and self._mark in row[5]]
        bounds = sorted(tuple(int(bound, 16) for bound in span.split("-")) for span in mapped)
        self._starts = [start for start, _ in bounds]
        self._ends = [end for _, end in bounds]


def private_bytes(process: int | None = None) -> int:
    """Anonymous memory in RAM of a process, by default this one: what is its own, shared segments not counted."""
    lines = Path(f"/proc/{process or 'self'}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
