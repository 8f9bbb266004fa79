"""Bytes that stand for attention state: different for every key, every tensor and every place in a tensor.

Owns how they are made and compared, a tensor at a time in one numpy pass. Knows nothing of where the memory
comes from.

    word i of tensor t of page k  =  noise[t][i]  xor  first 8 bytes of key k

`noise` is random and fixed, so a page, a tensor or a row in the wrong place, and a page of another key, all
differ in practically every word.
"""

import zlib
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from nexuskv.contract import Descriptor

Words = npt.NDArray[np.uint64]
Tensors = Callable[[str], npt.NDArray[np.generic]]


class Pattern:
    """The bytes of every page of one descriptor; keeps two pages of private memory."""

    def __init__(self, descriptor: Descriptor) -> None:
        places = descriptor.page_layout.tensors
        self._noise = {place.name: _noise(place.name, place.shape, place.dtype) for place in places}
        self._scratch = {name: noise.copy() for name, noise in self._noise.items()}

    def fill(self, tensors: Tensors, key: bytes) -> None:
        """Writes the page of `key`; `tensors(name)` is the writable tensor of that name."""
        for name, noise in self._noise.items():
            np.bitwise_xor(noise, _word(key), out=tensors(name).view(np.uint64))

    def wrong_tensors(self, tensors: Tensors, key: bytes) -> list[str]:
        """Names of the tensors in which any byte differs from the page of `key`; all bytes are read."""
        return [name for name in self._noise if not self._holds(name, tensors(name), key)]

    def _holds(self, name: str, tensor: npt.NDArray[np.generic], key: bytes) -> bool:
        np.bitwise_xor(tensor.view(np.uint64), _word(key), out=self._scratch[name])
        return np.array_equal(self._scratch[name], self._noise[name])


def _noise(name: str, shape: Iterable[int], dtype: np.dtype[np.generic]) -> Words:
    *outer, inner = shape
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    return generator.integers(0, 2**64, (*outer, inner * dtype.itemsize // 8), dtype=np.uint64)


def _word(key: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(key[:8], "little"))
