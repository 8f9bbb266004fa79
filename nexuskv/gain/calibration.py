"""A small measurement of how fast memory is read: the first estimate of a local path.

Owns the measurement. Knows nothing of pages. It takes about 50 ms, once a process that asks for a gain.
"""

import mmap
from time import perf_counter

import numpy as np
import numpy.typing as npt

SHARED_BYTES = 32 << 20
"""More than most last-level caches hold, so that it is memory that is measured."""
_CHUNK = 1 << 20
_FEW = 64
_ROUNDS = 64


def of_shared_memory() -> tuple[float, float]:
    """Latency in seconds and bytes a second of reading anonymous shared memory, which tmpfs segments are made of."""
    memory = np.frombuffer(mmap.mmap(-1, SHARED_BYTES), np.uint8)  # goes with the array
    memory[:: mmap.PAGESIZE] = 1  # a first touch would be measured instead
    return of_reading(memory)


def of_reading(memory: npt.NDArray[np.uint8]) -> tuple[float, float]:
    """Latency in seconds and bytes a second of one pass over `memory`, copied piece by piece into a small buffer.

    Each is the best of several: what else runs on the machine only ever adds.
    """
    scratch = np.zeros(min(_CHUNK, memory.nbytes), np.uint8)
    latency = min(_timed(memory[:_FEW], scratch) for _ in range(_ROUNDS))
    whole = min(_timed(memory, scratch) for _ in range(3))
    return latency, memory.nbytes / max(whole - latency, 1e-9)


def _timed(memory: npt.NDArray[np.uint8], scratch: npt.NDArray[np.uint8]) -> float:
    begin = perf_counter()
    for at in range(0, memory.nbytes, scratch.nbytes):
        piece = memory[at : at + scratch.nbytes]
        np.copyto(scratch[: piece.nbytes], piece)
    return max(perf_counter() - begin, 1e-9)
