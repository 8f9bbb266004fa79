"""What it costs to fetch state over each path: latency and bandwidth, measured and then followed as they change.

Owns the model of a path and its online estimate. Knows nothing of sockets or devices: how quick the ways to other hosts
are is measured by the daemon, which pulls over them.
"""

from functools import cached_property
from math import exp, log
from typing import Final, Protocol

from nexuskv.errors import LocalError
from nexuskv.gain import calibration

SHARED_MEMORY: Final = "shared_memory"
PINNED_MEMORY: Final = "pinned_memory"
RATE: Final = 0.2
"""Weight of the newest observation."""
_MOST: Final = log(8)
"""The largest surprise that counts: a transfer that waited for something else says little about the path."""


class Path(Protocol):
    """A way to get at pages."""

    name: str

    def seconds(self, pages: int, nbytes: int) -> float:
        """Expected time to have `nbytes` in `pages` pages at hand."""
        ...


class MeasuredPath:
    """latency + bytes / bandwidth, both exponentially weighted averages of what was observed.

    An observation corrects latency and bandwidth by the share that each had in the time expected, in the logarithm:
    small transfers teach the latency, large ones the bandwidth, and neither can become zero or negative. It is a
    least-mean-squares step on the logarithm of the time, so a millisecond too much counts for a short transfer more
    than for a long one.
    """

    def __init__(self, name: str, latency_seconds: float, bytes_per_second: float) -> None:
        if not (latency_seconds > 0 and bytes_per_second > 0):
            raise LocalError(
                f"path {name!r} takes {latency_seconds} s and {bytes_per_second} B/s: give measured, positive numbers"
            )
        self.name = name
        self.latency_seconds = latency_seconds
        self.bytes_per_second = bytes_per_second

    def seconds(self, pages: int, nbytes: int) -> float:  # what a path costs a page, another one may know
        """One latency, and the bytes at the bandwidth."""
        return self.latency_seconds + nbytes / self.bytes_per_second

    def observe(self, nbytes: int, seconds: float) -> None:
        """Learns from one transfer of `nbytes`."""
        if nbytes < 0 or not seconds > 0:
            raise LocalError(
                f"{nbytes} bytes in {seconds} s is no transfer: report bytes and the seconds it took"
            )
        expected = self.seconds(1, nbytes)
        surprise = RATE * max(-_MOST, min(_MOST, log(seconds / expected)))
        share = self.latency_seconds / expected
        self.latency_seconds *= exp(surprise * share)
        self.bytes_per_second *= exp(-surprise * (1 - share))


class Paths:
    """The paths of one client to what is on this host; that through shared memory is measured when first asked for."""

    @cached_property
    def shared_memory(self) -> MeasuredPath:
        """Reading in place what is resident on this host."""
        return MeasuredPath(SHARED_MEMORY, *calibration.of_shared_memory())
