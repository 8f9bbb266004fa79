"""Where each tensor lies inside a page, and how large pages and their slots are.

Owns offsets, strides and sizes, all derived. Knows nothing of kinds, arenas or shared memory: it turns tensor specs
with bound dimensions into places, and a place with a buffer into a numpy view.

    separate      each tensor whole, beginning at a multiple of 64 B
                  | K: layer 0, layer 1, ... | pad | V: layer 0, layer 1, ... |

    interleaved   one unit for every index of the kind's interleaved axes, the tensors one after another in it
                  | K layer 0 | V layer 0 | K layer 1 | V layer 1 | ...          (MHA: a unit a layer)
                  | c_KV | k_R | c_KV | k_R | ...                                (MLA: a unit a layer and token)

In a unit, tensors are aligned to their own element, as a C struct is: kernels fix such layouts to the byte.
"""

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nexuskv.contract.dtypes import DType
from nexuskv.contract.vocabulary import Role

TENSOR_ALIGNMENT: Final = 64
_PAGED_SLOTS_FROM: Final = 16 * 1024
_PAGED_SLOT: Final = 4096


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """One tensor of a page: bytes from the page's start, numpy type of the view, shape and byte strides."""

    name: str
    role: Role
    offset: int
    nbytes: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(self, buffer: memoryview | bytes | bytearray | NDArray[np.uint8], start: int = 0) -> NDArray:
        """The tensor in the page that begins at byte `start` of `buffer`; no copy, alive as long as the buffer."""
        return np.ndarray(self.shape, self.dtype, buffer, start + self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """All tensors of a page in the order of the descriptor; `nbytes` counts inner padding, and no trailing one."""

    nbytes: int
    tensors: tuple[TensorPlace, ...]


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """A tensor whose axes have numbers."""

    name: str
    role: Role
    dtype: DType
    shape: tuple[int, ...]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the numpy view: as `shape`, the last axis divided where elements are packed."""
        packed = self.dtype.packed
        return self.shape if packed == 1 else (*self.shape[:-1], self.shape[-1] // packed)

    @property
    def nbytes(self) -> int:
        return prod(self.stored_shape) * self.dtype.storage.itemsize


def separate(tensors: tuple[BoundTensor, ...]) -> PageLayout:
    """Each tensor whole and C-contiguous, at a multiple of 64 B."""
    places, end = [], 0
    for tensor in tensors:
        offset = round_up(end, TENSOR_ALIGNMENT)
        strides = _strides(tensor.stored_shape, tensor.dtype.storage.itemsize)
        places.append(_place(tensor, offset, strides))
        end = offset + tensor.nbytes
    return PageLayout(end, tuple(places))


def interleaved(tensors: tuple[BoundTensor, ...], outer: int) -> PageLayout:
    """Units of all tensors, one for every index of the first `outer` axes, which all tensors share."""
    offsets, end = [], 0
    for tensor in tensors:
        offsets.append(round_up(end, tensor.dtype.storage.itemsize))
        end = offsets[-1] + tensor.nbytes // prod(tensor.shape[:outer])
    unit = round_up(end, max(tensor.dtype.storage.itemsize for tensor in tensors))
    outer_shape = tensors[0].shape[:outer]
    outer_strides = _strides(outer_shape, unit)
    places = (
        _place(tensor, offset, outer_strides + _strides(tensor.stored_shape[outer:], tensor.dtype.storage.itemsize))
        for tensor, offset in zip(tensors, offsets, strict=True)
    )
    return PageLayout(prod(outer_shape) * unit, tuple(places))


def slot_bytes(page_bytes: int) -> int:
    """Bytes of the slot that holds a page: a multiple of 4 KiB from 16 KiB on, else of 64 B."""
    return round_up(page_bytes, _PAGED_SLOT if page_bytes >= _PAGED_SLOTS_FROM else TENSOR_ALIGNMENT)


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def _place(tensor: BoundTensor, offset: int, strides: tuple[int, ...]) -> TensorPlace:
    return TensorPlace(
        tensor.name, tensor.role, offset, tensor.nbytes, tensor.dtype.storage, tensor.stored_shape, strides
    )


def _strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """C-order byte strides of an array whose innermost items are `item` bytes apart."""
    return tuple(item * prod(shape[axis + 1 :]) for axis in range(len(shape)))
