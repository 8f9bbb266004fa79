"""How fast page keys are computed, against the hash calls that they cannot do without.

Owns that one figure. The floor hashes the same bytes in as many calls, with the ids and the bytes of each page at hand.
"""

import time
from hashlib import blake2b
from struct import iter_unpack

import numpy as np

from nexuskv.bench.figures import Readings
from nexuskv.bench.measure import interleaved
from nexuskv.bench.suite import Effort, Tell
from nexuskv.contract import KEY_BYTES, page_keys

TOKENS = 131_072
PAGE_TOKENS = 16
MEGA = 1e6


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds page_keys: tokens a second, from a list of ids as engines have them."""
    ids = np.random.default_rng(1).integers(0, 128_000, effort.pick(TOKENS, 1024), np.uint32).tolist()
    keying = _Keying(ids)
    for run in range(1, effort.runs + 1):
        tell(f"page keys, run {run} of {effort.runs}")
        took = interleaved(effort.pick(21, 1), {"keys": keying.keys, "floor": keying.floor})
        readings.add("page_keys", None, len(ids) / took["keys"] / MEGA, len(ids) / took["floor"] / MEGA)


class _Keying:
    def __init__(self, ids: list[int]) -> None:
        self._ids = ids
        self._root = bytes(KEY_BYTES)
        pages = iter_unpack(f"{4 * PAGE_TOKENS}s", np.asarray(ids, "<u4").tobytes())
        self._pages = [page for (page,) in pages]

    def keys(self) -> list[float]:
        start = time.perf_counter()
        page_keys(self._root, self._ids, PAGE_TOKENS)
        return [time.perf_counter() - start]

    def floor(self) -> list[float]:
        start = time.perf_counter()
        parent = self._root
        for page in self._pages:
            parent = blake2b(parent + page, digest_size=KEY_BYTES).digest()
        return [time.perf_counter() - start]
