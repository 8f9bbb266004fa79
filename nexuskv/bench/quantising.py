"""How fast int8 is, against the same arithmetic written as bare passes of numpy.

Owns those two figures. Both write to memory that is there: a pass that first has its result's memory faulted in would
measure the kernel.
"""

import time

import numpy as np
import numpy.typing as npt

from nexuskv.bench.figures import Readings
from nexuskv.bench.measure import interleaved
from nexuskv.bench.suite import Effort, Tell
from nexuskv.quant import int8

HEADS, HEAD_DIM = 8, 128
GIGA = 1e9

Floats = npt.NDArray[np.float32]


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds int8_quantize and int8_dequantize, in bytes of float32 a second."""
    work = _Work(effort.pick(4096, 16))
    for run in range(1, effort.runs + 1):
        tell(f"int8, run {run} of {effort.runs}")
        for name in ("quantize", "dequantize"):
            actions = {"ours": getattr(work, name), "floor": getattr(work, f"bare_{name}")}
            took = interleaved(effort.pick(21, 1), actions)
            speeds = (work.x.nbytes / took[which] / GIGA for which in ("ours", "floor"))
            readings.add(f"int8_{name}", None, *speeds)


class _Work:
    """Numbers of `tokens` tokens, and room for all that is made of them."""

    def __init__(self, tokens: int) -> None:
        self.x: Floats = np.random.default_rng(1).standard_normal((tokens, HEADS, HEAD_DIM), np.float32)
        self._payload = np.zeros(self.x.shape, np.int8)
        self._scales = np.zeros(self.x.shape[:-1], np.float32)
        self._room, self._out = np.zeros_like(self.x), np.zeros_like(self.x)

    def quantize(self) -> list[float]:
        start = time.perf_counter()
        int8.quantize(self.x, payload=self._payload, scales=self._scales)
        return [time.perf_counter() - start]

    def bare_quantize(self) -> list[float]:
        start = time.perf_counter()
        np.abs(self.x, out=self._room)
        np.max(self._room, axis=-1, out=self._scales)
        np.divide(self._scales, np.float32(127), out=self._scales)
        np.divide(self.x, self._scales[..., None], out=self._room)
        np.rint(self._room, out=self._room)
        np.copyto(self._payload, self._room, casting="unsafe")
        return [time.perf_counter() - start]

    def dequantize(self) -> list[float]:
        start = time.perf_counter()
        int8.dequantize(self._payload, self._scales, self._out)
        return [time.perf_counter() - start]

    def bare_dequantize(self) -> list[float]:
        start = time.perf_counter()
        np.copyto(self._out, self._payload)
        np.multiply(self._out, self._scales[..., None], out=self._out)
        return [time.perf_counter() - start]
