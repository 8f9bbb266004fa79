"""The descriptor: the immutable typed contract of one kind of state.

Owns the fields that every kind has and what is derived from them. Knows no kind: a kind is a tagged subclass that
says which roles it needs, which axes each role has and how its tensors interleave (`kinds`). What makes a descriptor
valid is in `checks`, how it becomes bytes in `canonical` and `codec`.
"""

from functools import cached_property
from hashlib import blake2b
from typing import Annotated, ClassVar, Final

import msgspec

from nexuskv.contract import checks, faults, placement
from nexuskv.contract.canonical import canonical_bytes, canonical_fields
from nexuskv.contract.placement import BoundTensor, PageLayout
from nexuskv.contract.reuse import AllPages, Reuse
from nexuskv.contract.tensors import LAYERS, Dims, Layout, Name, Quantization, Size, TensorSpec
from nexuskv.contract.vocabulary import Arrangement, EngineFamily, Flag, Granularity, Role, Scheme

DIGEST_BYTES: Final = 32
_DIGEST_MAGIC: Final = b"nexuskv-descriptor-v1"
_NOT_PHYSICAL: Final = ("descriptor_id", "engine_family", "granularity", "compatibility_flags")

DescriptorId = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{checks.ID}$"})]


class Descriptor(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="semantic_type",
    dict=True,
):
    """The fields of every kind; a kind's constructor builds one, `decode` reads one. DescriptorError either way."""

    axes: ClassVar[dict[Role, tuple[str, ...]]]
    """The roles that the kind knows, with their axes in NHD order, an optional leading `layers` apart."""
    forms: ClassVar[tuple[frozenset[Role], ...]] = ()
    """The sets of roles that a page of the kind may have, once each; left empty, every page has all of `axes`."""
    content_keyed: ClassVar[bool] = False
    """Whether pages are found by what they were computed from (`keys.content_keys`), not by the tokens before them."""
    block_roles: ClassVar[tuple[Role, Role | None] | None] = None
    """Of a kind whose pages hold blocks: the tensor they are cut from, and the one that numbers them."""
    interleaved_axes: ClassVar[tuple[str, ...]]
    """Leading axes that have one unit of all tensors for each index when the arrangement is interleaved."""
    schemes: ClassVar[frozenset[Scheme]]
    """How the kind may be quantised."""
    reuse_rules: ClassVar[tuple[type[Reuse], ...]]
    """Which rules can make a prefix of the kind restorable."""

    descriptor_id: DescriptorId
    engine_family: EngineFamily
    granularity: Granularity
    tensor_specs: tuple[TensorSpec, ...]
    dims: dict[Name, Size]
    layout: Layout
    quantization: Quantization = Quantization()
    compatibility_flags: frozenset[Flag] = frozenset()
    reuse: Reuse = AllPages()

    def __post_init__(self) -> None:
        faults.hold_to_types(self)
        msgspec.structs.force_setattr(self, "dims", Dims(self.dims))
        checks.check(self)
        layout = msgspec.structs.replace(self.layout, stride_bytes=self.stride_bytes)
        msgspec.structs.force_setattr(self, "layout", layout)

    @property
    def semantic_type(self) -> str:
        """The kind: the tag of the encoded forms."""
        return str(self.__struct_config__.tag)

    @property
    def page_tokens(self) -> int:
        """Tokens of a page, or between two checkpoints."""
        return self.layout.page_tokens

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, alignment between its tensors included."""
        return self.page_layout.nbytes

    @property
    def bytes_per_token(self) -> float:
        """Page bytes over page tokens; of a checkpoint, its size spread over the tokens between two of them."""
        return self.page_bytes / self.page_tokens

    @property
    def chained(self) -> bool:
        """Whether a page is of use only below the one before it: what is resident is closed under "prefix of"."""
        return isinstance(self.reuse, AllPages) and not self.content_keyed and not self.lone_block

    @property
    def lone_block(self) -> bool:
        """Whether a page is one block that was cut out of another (`contract/blocks.py`): it stands for itself."""
        if self.block_roles is None:
            return False
        return {spec.role for spec in self.tensor_specs} - {Role.SCALE} == {self.block_roles[0]}

    @property
    def sizes(self) -> dict[str, int]:
        """Every name that a shape may use, with its number."""
        return {**self.dims, "page_tokens": self.page_tokens}

    @property
    def shared_axes(self) -> tuple[str, ...]:
        """The interleaved axes that this descriptor has: it may be of one layer."""
        return tuple(axis for axis in self.interleaved_axes if axis in self.sizes)

    @cached_property
    def bound_tensors(self) -> tuple[BoundTensor, ...]:
        """The tensors with numbers for their axes."""
        sizes = self.sizes
        return tuple(
            BoundTensor(spec.name, spec.role, spec.dtype, tuple(sizes[axis] for axis in spec.shape))
            for spec in self.tensor_specs
        )

    @cached_property
    def page_layout(self) -> PageLayout:
        """Where each tensor lies in a page."""
        if self.layout.arrangement is Arrangement.SEPARATE:
            return placement.separate(self.bound_tensors)
        return placement.interleaved(self.bound_tensors, len(self.shared_axes))

    @property
    def stride_bytes(self) -> int:
        """Bytes of one layer of a page, all its tensors: 2 * S * H_kv * D * b for MHA.

        Interleaved, it is the distance between two layers; separate, alignment between tensors is not counted.
        """
        layers = self.dims.get(LAYERS, 1)
        if self.layout.arrangement is Arrangement.SEPARATE:
            return sum(tensor.nbytes for tensor in self.bound_tensors) // layers
        return self.page_bytes // layers

    @cached_property
    def digest(self) -> bytes:
        """BLAKE2b-256 of "nexuskv-descriptor-v1" followed by the canonical bytes of the physical contract.

        That is the canonical map without descriptor_id, engine_family, granularity and compatibility_flags. These
        change no byte of a page, so engines of two families that agree on all else find each other's pages. `reuse`
        is part of it because it decides which pages make a prefix; `layout.stride_bytes` always has its number.
        """
        fields = canonical_fields(self)
        for name in _NOT_PHYSICAL:
            fields.pop(name, None)
        return blake2b(_DIGEST_MAGIC + canonical_bytes(fields), digest_size=DIGEST_BYTES).digest()
