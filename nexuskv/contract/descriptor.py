"""The descriptor: the immutable typed contract of one kind of state.

Owns the fields that every kind has and what is derived from them. Knows no kind: a kind is a tagged subclass that says
which roles it needs, which axes each role has and how its tensors interleave (`kinds`). What makes a descriptor valid is
in `checks`, how it becomes bytes in `canonical` and `codec`.
"""

from functools import cached_property
from hashlib import blake2b
from typing import Annotated, ClassVar, Final

import msgspec

from nexuskv.contract import checks, placement
from nexuskv.contract.canonical import canonical_bytes, canonical_fields
from nexuskv.contract.placement import PageLayout
from nexuskv.contract.reuse import AllPages, Reuse
from nexuskv.contract.tensors import Dims, Layout, Name, Quantization, Size, TensorSpec
from nexuskv.contract.vocabulary import Arrangement, EngineFamily, Flag, Granularity, Role, Scheme

DIGEST_BYTES: Final = 32
_DIGEST_MAGIC: Final = b"nexuskv-descriptor-v1"
_NOT_PHYSICAL: Final = ("descriptor_id", "engine_family", "compatibility_flags")

DescriptorId = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": checks.ID_PATTERN})]


class Descriptor(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="semantic_type", dict=True
):
    """Fields of every kind. Build one with a kind's constructor, or decode one; raises DescriptorError either way."""

    axes: ClassVar[dict[Role, tuple[str, ...]]]
    """Roles that the kind needs, once each, and their axes after an optional leading `layers`, in NHD order."""
    interleaved_axes: ClassVar[tuple[str, ...]]
    """Leading axes that have one unit of all tensors for each index when the arrangement is interleaved."""
    schemes: ClassVar[frozenset[Scheme]]
    reuse_rules: ClassVar[tuple[type[Reuse], ...]]

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
        checks.normalise(self)
        msgspec.structs.force_setattr(self, "dims", Dims(self.dims))
        checks.check(self)
        checks.declare_stride(self, self.stride_bytes)

    @property
    def semantic_type(self) -> str:
        """The kind: the tag of the encoded forms."""
        return str(self.__struct_config__.tag)

    @property
    def page_tokens(self) -> int:
        return self.layout.page_tokens

    @property
    def page_bytes(self) -> int:
        return self.page_layout.nbytes

    @property
    def bytes_per_token(self) -> float:
        """Page bytes over page tokens; for a checkpoint, its size spread over the tokens between two of them."""
        return self.page_bytes / self.page_tokens

    @cached_property
    def bound_tensors(self) -> tuple[placement.BoundTensor, ...]:
        """The tensors with numbers for their axes."""
        sizes = checks.sizes(self)
        return tuple(
            placement.BoundTensor(spec.name, spec.role, spec.dtype, tuple(sizes[axis] for axis in spec.shape))
            for spec in self.tensor_specs
        )

    @cached_property
    def page_layout(self) -> PageLayout:
        """Where each tensor lies in a page."""
        if self.layout.arrangement is Arrangement.SEPARATE:
            return placement.separate(self.bound_tensors)
        return placement.interleaved(self.bound_tensors, len(checks.shared_axes(self)))

    @property
    def stride_bytes(self) -> int:
        """Bytes of one layer of a page, all tensors together: 2 * S * H_kv * D * b for MHA.

        Interleaved, this is the distance between two layers; separate, alignment padding is not counted.
        """
        layers = self.dims.get("layers", 1)
        if self.layout.arrangement is Arrangement.SEPARATE:
            return sum(tensor.nbytes for tensor in self.bound_tensors) // layers
        return self.page_bytes // layers

    @cached_property
    def digest(self) -> bytes:
        """BLAKE2b-256 of "nexuskv-descriptor-v1" and the canonical bytes of the physical contract.

        The id, the engine family and the compatibility flags stay out: they change no byte of a page, so engines of
        two families find each other's pages. `reuse` is in, because it decides which pages make a prefix.
        """
        fields = canonical_fields(self)
        for name in _NOT_PHYSICAL:
            fields.pop(name, None)
        return blake2b(_DIGEST_MAGIC + canonical_bytes(fields), digest_size=DIGEST_BYTES).digest()
