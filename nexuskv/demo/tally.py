"""Adds up what engines answered, one tally for each engine.

Owns the counting and the percentiles. Knows nothing of processes or of how figures are shown.
"""

from array import array
from collections.abc import Iterable

import msgspec
import numpy as np

from nexuskv.demo.trace import TraceRequest
from nexuskv.demo.wire import Served


class Latency(msgspec.Struct, frozen=True):
    """Percentiles of one operation over all requests that needed it, in microseconds."""

    p50_us: float
    p99_us: float


class Figures(msgspec.Struct, frozen=True):
    """What one engine, or several together, did. `ideal_*`: what a cache without limits would have hit."""

    requests: int
    tokens: int
    tokens_reused: int
    blocks: int
    blocks_hit: int
    hit_rate: float
    ideal_hit_rate: float
    blocks_stored: int
    bytes_read_in_place: int
    bytes_copied: int
    bytes_stored: int
    private_bytes_grown: int
    match: Latency
    reserve_commit: Latency


class Tally:
    """Running counts of one engine."""

    def __init__(self, page_bytes: int, private_bytes: int) -> None:
        self._page_bytes, self._private_before = page_bytes, private_bytes
        self.requests = self.tokens = self.reused = self.blocks = self.hit = self.ideal = 0
        self.stored = self.outside = self.grown = 0
        self.match_ns, self.store_ns = array("q"), array("q")

    def add(self, request: TraceRequest, served: Served, ideal: int) -> None:
        """Counts one answer; `ideal` blocks would have been hit in a cache without limits."""
        self.requests += 1
        self.tokens += request.input_length
        self.reused += request.tokens_in(served.hit)
        self.blocks += len(request.hash_ids)
        self.hit += served.hit
        self.ideal += ideal
        self.stored += served.stored
        self.outside += served.outside
        self.grown = max(self.grown, served.private_bytes - self._private_before)
        self.match_ns.append(served.match_ns)
        if served.stored:
            self.store_ns.append(served.reserve_ns + served.commit_ns)

    def __add__(self, other: "Tally") -> "Tally":
        both = Tally(self._page_bytes, 0)
        for name in ("requests", "tokens", "reused", "blocks", "hit", "ideal", "stored", "outside", "grown"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        both.match_ns, both.store_ns = self.match_ns + other.match_ns, self.store_ns + other.store_ns
        return both

    def figures(self) -> Figures:
        """The counts as they are reported; bytes are whole pages."""
        return Figures(
            requests=self.requests,
            tokens=self.tokens,
            tokens_reused=self.reused,
            blocks=self.blocks,
            blocks_hit=self.hit,
            hit_rate=self.hit / max(1, self.blocks),
            ideal_hit_rate=self.ideal / max(1, self.blocks),
            blocks_stored=self.stored,
            bytes_read_in_place=(self.hit - self.outside) * self._page_bytes,
            bytes_copied=self.outside * self._page_bytes,
            bytes_stored=self.stored * self._page_bytes,
            private_bytes_grown=self.grown,
            match=_latency(self.match_ns),
            reserve_commit=_latency(self.store_ns),
        )


def _latency(nanoseconds: Iterable[int]) -> Latency:
    values = np.fromiter(nanoseconds, dtype=np.float64)
    if not len(values):
        return Latency(0.0, 0.0)
    p50, p99 = np.percentile(values, (50, 99)) / 1000
    return Latency(float(p50), float(p99))
