"""Blocks of sparse pages, pulled on demand: the ones that a selector named, and no byte of the others.

Owns the numbering of blocks and their choice. A pull within a host moves nothing: each block is a view in place, and
memory that nobody looks at is not even mapped. Knows nothing of pins; the hit that the pages belong to holds them.

Where pages have a selector tensor (DSA), it holds the number of each block in its sequence. Where they have none (NSA),
block j of a page is number position * K + j, with the page's position among the keys that were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nexuskv.contract import Descriptor
from nexuskv.contract.blocks import block_tensors, check_layer
from nexuskv.errors import BadRequest
from nexuskv.ipc.mapping import Array

Numbers = Sequence[int] | npt.NDArray[np.integer]
"""Numbers of blocks, one dimension."""
_MOST = np.iinfo(np.int64).max


class SparsePage(Protocol):
    """A page and its tensors by name."""

    position: int

    def __getitem__(self, name: str, /) -> Array: ...


def select(
    descriptor: Descriptor, pages: Sequence[SparsePage], wanted: Numbers, layer: int | None
) -> list[Array]:
    """The block of each wanted number, in order: read-only views (block_tokens, kv_heads, head_dim) in place.

    Raises BadRequest for a number that no page has.
    """
    name, _ = _tensors(descriptor)
    found = places(descriptor, pages, wanted, layer)
    return [_layer(descriptor, pages[page][name], layer)[place] for page, place in found]


def places(
    descriptor: Descriptor, pages: Sequence[SparsePage], wanted: Numbers, layer: int | None
) -> list[tuple[int, int]]:
    """Of each wanted number the page that has it, and where it stands there. Raises BadRequest."""
    there = numbers(descriptor, pages, layer)
    found = _places(there, as_numbers(wanted))
    return [divmod(place, _top_k(descriptor)) for place in found]


def as_numbers(wanted: Numbers) -> npt.NDArray[np.int64]:
    """What was asked for. Raises BadRequest for what are no integers of 64 bits."""
    try:
        found = np.asarray(wanted).reshape(-1)
    except ValueError:  # lists of different lengths
        found = np.empty(1, np.object_)
    if found.size and not (found.dtype.kind in "iu" and int(found.max()) <= _MOST):
        raise BadRequest(f"block numbers are integers of 64 bits, not {wanted!r}: give those of the selector")
    return found.astype(np.int64)


def numbers(descriptor: Descriptor, pages: Sequence[SparsePage], layer: int | None) -> npt.NDArray[np.int64]:
    """The numbers of all blocks of the pages, page by page."""
    _, selector = _tensors(descriptor)
    each = _top_k(descriptor)
    if selector is None:
        check_layer(descriptor, layer)
        found: list[Array] = [np.arange(each) + page.position * each for page in pages]
    else:
        found = [_layer(descriptor, page[selector], layer) for page in pages]
    return np.concatenate(found).astype(np.int64) if found else np.empty(0, np.int64)


def _places(there: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> list[int]:
    """Where each wanted number stands first in `there`."""
    order = np.argsort(there, kind="stable")  # which is what it is already, most often
    at = np.searchsorted(there, wanted, sorter=order)
    known = at < len(there)
    known[known] = there[order[at[known]]] == wanted[known]
    if not known.all():
        missing = ", ".join(map(str, wanted[~known][:8]))
        raise BadRequest(
            f"these pages have no block {missing}: block_numbers() tells which they have, others must be computed"
        )
    return [int(place) for place in order[at]]


def _tensors(descriptor: Descriptor) -> tuple[str, str | None]:
    """Names of the tensor of blocks and of that of their numbers."""
    data, index = block_tensors(descriptor)
    return data.name, None if index is None else index.name


def _top_k(descriptor: Descriptor) -> int:
    return descriptor.dims["top_k"]


def _layer(descriptor: Descriptor, tensor: Array, layer: int | None) -> Array:
    check_layer(descriptor, layer)
    chosen: Array = tensor if layer is None else tensor[layer]
    return chosen
