"""How quick a path to a peer is, as measured by the pulls that went over it.

Owns the moving averages, and the estimate made of them. Reads no clock: `now` is handed in, in seconds.
"""

from dataclasses import dataclass

from nexuskv.protocol.offers import ROUND_TRIPS

WEIGHT = 0.25
"""Of the newest measurement."""
TELLING_BYTES = 1 << 20
STALE_SECONDS = 60.0
"""What is older tells nothing any more: the next pull is made whatever it costs, and measures anew."""


@dataclass(slots=True)
class Gauge:
    """`latency` in seconds and `bandwidth` in bytes a second; 0 while unknown."""

    latency: float = 0.0
    bandwidth: float = 0.0
    _measured: float = 0.0

    def answered(self, seconds: float) -> None:
        """A message went to the peer and back."""
        self.latency = _blend(self.latency, seconds)

    def pulled(self, nbytes: int, seconds: float, now: float) -> None:
        """A batch came. A small one is all latency: it tells of bandwidth only while nothing better is known."""
        if nbytes < TELLING_BYTES and self.bandwidth:
            return
        self._measured = now
        moving = max(seconds - self.latency, seconds / 4, 1e-9)
        self.bandwidth = _blend(self.bandwidth, nbytes / moving)

    def estimate(self, nbytes: int, now: float) -> float | None:
        """Seconds that pulling `nbytes` would take. None while unknown."""
        if not self.bandwidth or now - self._measured > STALE_SECONDS:
            return None
        return ROUND_TRIPS * self.latency + nbytes / self.bandwidth


def _blend(known: float, measured: float) -> float:
    return measured if not known else (1 - WEIGHT) * known + WEIGHT * measured
