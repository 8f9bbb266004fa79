"""Where each tensor lies inside a page, and how large pages and their slots are.

Owns offsets, strides and sizes, all derived. Knows nothing of kinds, arenas or shared memory: it turns tensors with
numbers for axes into places, and a place with a buffer into a numpy view.

    separate      each tensor whole, beginning at a multiple of 64 B
                  | K: layer 0, layer 1, ... | pad | V: layer 0, layer 1, ... |

    interleaved   one unit for every index of the kind's interleaved axes, in it the tensors one after another
                  | K layer 0 | V layer 0 | K layer 1 | V layer 1 | ...         MHA: a unit a layer
                  | c_KV | k_R | c_KV | k_R | ...                               MLA: a unit a layer and token

In a unit, tensors are aligned to their own element and the unit to its largest one, as in a C struct: kernels fix
such layouts to the byte. A page begins at a multiple of 64 B, and nothing pads its end.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nexuskv.contract.dtypes import DType
from nexuskv.contract.vocabulary import Role

TENSOR_ALIGNMENT: Final = 64
_PAGED_SLOTS_FROM: Final = 16 * 1024
_MEMORY_PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """One tensor of a page: bytes from the page's start, numpy type of the view, shape and strides in bytes."""

    name: str
    role: Role
    offset: int
    nbytes: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(
        self, buffer: memoryview | bytes | bytearray | NDArray[np.uint8], start: int = 0
    ) -> NDArray[Any]:
        """The tensor in the page that begins at byte `start` of `buffer`; no copy, and it keeps `buffer` alive."""
        return np.ndarray(self.shape, self.dtype, buffer, start + self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """The tensors of a page in the descriptor's order; `nbytes` is where the last byte of any of them ends."""

    nbytes: int
    tensors: tuple[TensorPlace, ...]


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """A tensor whose axes have numbers; `shape` counts elements, `stored_shape` items of the stored type."""

    name: str
    role: Role
    dtype: DType
    shape: tuple[int, ...]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        packed = self.dtype.packed
        return self.shape if packed == 1 else (*self.shape[:-1], self.shape[-1] // packed)

    @property
    def nbytes(self) -> int:
        return prod(self.stored_shape) * self.dtype.itemsize

    def at(self, offset: int, strides: tuple[int, ...]) -> TensorPlace:
        """Its place at `offset` with `strides`."""
        dtype = self.dtype.storage
        return TensorPlace(self.name, self.role, offset, self.nbytes, dtype, self.stored_shape, strides)


def separate(tensors: tuple[BoundTensor, ...]) -> PageLayout:
    """Each tensor whole and C-contiguous, at a multiple of 64 B."""
    places: list[TensorPlace] = []
    end = 0
    for tensor in tensors:
        offset = _round_up(end, TENSOR_ALIGNMENT)
        places.append(tensor.at(offset, _strides(tensor.stored_shape, tensor.dtype.itemsize)))
        end = offset + tensor.nbytes
    return PageLayout(end, tuple(places))


def interleaved(tensors: tuple[BoundTensor, ...], outer: int) -> PageLayout:
    """Units of all tensors, one for every index of their first `outer` axes, which all of them share."""
    offsets: list[int] = []
    end = 0
    for tensor in tensors:
        offsets.append(_round_up(end, tensor.dtype.itemsize))
        end = offsets[-1] + tensor.nbytes // prod(tensor.shape[:outer])
    unit = _round_up(end, max(tensor.dtype.itemsize for tensor in tensors))
    units = tensors[0].shape[:outer]
    places = tuple(
        tensor.at(
            offset, _strides(units, unit) + _strides(tensor.stored_shape[outer:], tensor.dtype.itemsize)
        )
        for tensor, offset in zip(tensors, offsets, strict=True)
    )
    return PageLayout(prod(units) * unit, places)


def slot_bytes(page_bytes: int) -> int:
    """Bytes of the slot that holds a page: a multiple of 4 KiB from 16 KiB on, else of 64 B."""
    return _round_up(page_bytes, _MEMORY_PAGE if page_bytes >= _PAGED_SLOTS_FROM else TENSOR_ALIGNMENT)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """C-order strides of an array whose neighbours on the last axis are `item` bytes apart."""
    return tuple(item * prod(shape[axis + 1 :]) for axis in range(len(shape)))
