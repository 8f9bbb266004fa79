"""Blocks of sparse pages, each for itself: which bytes of a page they are, and what a page of one alone looks like.

Owns the cutting. A block that was pulled from another host is a page of its own, in an arena whose descriptor is
derived from that of the page it was cut from. It is found by that page's key, its layer and its number:

    key = BLAKE2b-256( "nexuskv-block-v1" | key of the page | layer u32 | number i64 )

Page keys are rooted in descriptor, model, tenant and salt, so block keys keep all of these apart as well. Where a page
has several layers a block is of one of them, and numbers are those of `Hit.blocks`:

    page    | layer 0: X[0] X[1] .. X[K-1] | layer 1: ..         | selector | scales of X, layer by layer | ..
                            |____ layer 0, place 1 ____                        |__ of that block __
                                                       |                      |
    block                                             | X[1] | pad to 64 B | scales |

Knows nothing of hosts, hits or pins.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.keys import KEY_BYTES
from nexuskv.contract.placement import TensorPlace
from nexuskv.contract.scales import PAYLOAD_DTYPE
from nexuskv.contract.tensors import LAYERS, PAGE_TOKENS, Layout, Quantization, TensorSpec
from nexuskv.contract.vocabulary import EngineFamily, Flag, Granularity, Scheme
from nexuskv.errors import BadRequest

_MAGIC: Final = b"nexuskv-block-v1"
_PLACES: Final = "top_k"


class Extent(NamedTuple):
    """`nbytes` at `offset` of a page, which stand at `into` of a page made of them."""

    offset: int
    into: int
    nbytes: int


def block_key(page: bytes, layer: int, number: int) -> bytes:
    """Key of one block of the page with key `page`; `layer` is 0 where pages have one."""
    name = page + layer.to_bytes(4, "little") + number.to_bytes(8, "little", signed=True)
    return blake2b(_MAGIC + name, digest_size=KEY_BYTES).digest()


def block_tensors(parent: Descriptor) -> tuple[TensorSpec, TensorSpec | None]:
    """The tensor that blocks are cut from, and that of their numbers. Raises BadRequest where there are none."""
    data, index = parent.block_roles or (None, None)
    found = {spec.role: spec for spec in parent.tensor_specs}
    if data is None or data not in found or parent.lone_block:
        raise BadRequest(
            f"pages of {parent.descriptor_id} have no blocks to choose from: read their tensors by name"
        )
    return found[data], None if index is None else found[index]


def check_layer(parent: Descriptor, layer: int | None) -> int:
    """The layer as block keys have it: 0 where there is one only. Raises BadRequest."""
    layers = parent.dims.get(LAYERS)
    if layers is None and layer is not None:
        raise BadRequest("these pages are of one layer: leave `layer` out")
    if layers is not None and (layer is None or not 0 <= layer < layers):
        raise BadRequest(
            f"layer is {layer}: blocks are chosen layer by layer, name one from 0 to {layers - 1}"
        )
    return int(layer or 0)  # also of numpy's


class Blocks:
    """The blocks of the pages of descriptor `parent`; `descriptor` is that of a page of one block."""

    def __init__(self, parent: Descriptor) -> None:
        """Raises BadRequest where pages have no blocks, or scales that are not cut as these are."""
        self.parent = parent
        specs = _specs(parent)
        self.descriptor = _derived(parent, specs)
        self.name = specs[0].name
        self.scale = specs[1].name if len(specs) > 1 else None
        self.top_k = parent.dims[_PLACES]
        self.layers = parent.dims.get(LAYERS)
        places = {place.name: place for place in parent.page_layout.tensors}
        self._parts = [
            (places[part.name], part.offset, part.nbytes) for part in self.descriptor.page_layout.tensors
        ]
        selector = block_tensors(parent)[1]
        self._selector = None if selector is None else places[selector.name]

    def layer(self, told: int) -> int:
        """A layer as messages and keys have it, which is 0 where pages have one only. Raises BadRequest."""
        return check_layer(self.parent, told if told or self.layers else None)

    def place(self, page: memoryview, layer: int, number: int) -> int | None:
        """Where block `number` stands in a page, None when it is not there. Without a selector it says so itself."""
        if self._selector is None:
            return number if 0 <= number < self.top_k else None
        there = np.flatnonzero(_of_layer(self._selector.view(page), self.layers, layer) == number)
        return int(there[0]) if len(there) else None

    def extents(self, layer: int, place: int) -> tuple[Extent, ...]:
        """Which bytes of a page make the page of one block; where these leave gaps, the latter has zeros."""
        return tuple(
            Extent(tensor.offset + self._distance(tensor, layer, place), into, nbytes)
            for tensor, into, nbytes in self._parts
        )

    def _distance(self, tensor: TensorPlace, layer: int, place: int) -> int:
        index = (place,) if self.layers is None else (layer, place)
        return sum(at * stride for at, stride in zip(index, tensor.strides, strict=False))


@lru_cache(maxsize=64)
def blocks_of(parent: Descriptor) -> Blocks:
    """The blocks of a descriptor's pages. Raises BadRequest."""
    return Blocks(parent)


def cut(page: memoryview, extents: Sequence[Extent]) -> memoryview:
    """The bytes that a page of them has: in place where they are one piece, else put together."""
    if len(extents) == 1:
        return page[extents[0].offset : extents[0].offset + extents[0].nbytes]
    joined = bytearray(extents[-1].into + extents[-1].nbytes)
    for offset, into, nbytes in extents:
        joined[into : into + nbytes] = page[offset : offset + nbytes]
    return memoryview(joined)


def _of_layer(selector: NDArray[np.generic], layers: int | None, layer: int) -> NDArray[np.generic]:
    chosen: NDArray[np.generic] = selector if layers is None else selector[layer]
    return chosen


def _specs(parent: Descriptor) -> tuple[TensorSpec, ...]:
    """The tensor that blocks are cut from, and that of its scales if it has some. Raises BadRequest."""
    found, _ = block_tensors(parent)
    payloads = [
        spec for spec in parent.tensor_specs if spec.dtype is PAYLOAD_DTYPE.get(parent.quantization.scheme)
    ]
    if found not in payloads:  # it may be that the indexer's keys alone are quantised
        return (found,)
    scale = parent.quantization.scale_tensors[payloads.index(found)]
    spec = next(each for each in parent.tensor_specs if each.name == scale)
    leading = (LAYERS, _PLACES) if LAYERS in parent.dims else (_PLACES,)
    if spec.shape[: len(leading)] != leading or PAGE_TOKENS in spec.shape:
        raise BadRequest(
            f"scales {list(spec.shape)} are not cut by blocks: read whole pages, or begin them with {list(leading)}"
        )
    return found, spec


def _derived(parent: Descriptor, specs: Sequence[TensorSpec]) -> Descriptor:
    """A page of one block, of one layer. Its id is of the parent's digest, which says all that matters of it."""
    tensors = tuple(
        msgspec.structs.replace(spec, shape=tuple(axis for axis in spec.shape if axis != LAYERS))
        for spec in specs
    )
    used = {axis for spec in tensors for axis in spec.shape}
    dims = {name: size for name, size in parent.dims.items() if name in used} | {_PLACES: 1}
    return type(parent)(
        descriptor_id=f"blocks-of:{parent.digest.hex()}",
        engine_family=EngineFamily.CXX_FFI,
        granularity=Granularity.BLOCK,
        tensor_specs=tensors,
        dims=dims,
        layout=Layout(page_tokens=parent.dims["block_tokens"]),
        quantization=Quantization(
            scheme=parent.quantization.scheme if tensors[1:] else Scheme.NONE,
            scale_tensors=tuple(spec.name for spec in tensors[1:]),
        ),
        compatibility_flags=frozenset({Flag.EXACT_REUSE}),
    )
