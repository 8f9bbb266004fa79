"""What the constructors of the kinds share: words to members, sizes to dims, payloads to their scale tensors.

Owns no rule: whatever is built here is checked by the descriptor itself. Knows no kind.
"""

from collections.abc import Container, Iterable
from typing import Required, TypedDict, TypeVar

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.reuse import AllPages, Reuse
from nexuskv.contract.scales import FP8, PAYLOAD_DTYPE
from nexuskv.contract.tensors import LAYERS, Layout, Quantization, TensorSpec
from nexuskv.contract.vocabulary import (
    Arrangement,
    DimensionOrder,
    EngineFamily,
    Flag,
    Granularity,
    Role,
    Scheme,
    member,
)

Kind = TypeVar("Kind", bound=Descriptor)


PERMITTED = (Flag.EXACT_REUSE, Flag.PREFIX_REUSE, Flag.ZERO_COPY_RDMA)
"""Flags where a constructor is given none; those of branches have one more, those found by content one less."""


class Common(TypedDict, total=False):
    """Arguments that every constructor takes beside its geometry."""

    engine_family: Required[str]
    granularity: str
    arrangement: str
    compatibility_flags: Iterable[str]


def assemble(
    kind: type[Kind],
    descriptor_id: str,
    tensors: tuple[TensorSpec, ...],
    dims: dict[str, int],
    page_tokens: int,
    *,
    engine_family: str,
    granularity: str = Granularity.PAGE,
    arrangement: str = Arrangement.SEPARATE,
    dimension_order: str = DimensionOrder.NHD,
    scheme: Scheme = Scheme.NONE,
    compatibility_flags: Iterable[str] = PERMITTED,
    reuse: Reuse = AllPages(),
) -> Kind:
    """The descriptor of a kind; its scale tensors are those of role SCALE, its stride is left to be derived."""
    scales = tuple(spec.name for spec in tensors if spec.role is Role.SCALE)
    return kind(
        descriptor_id=descriptor_id,
        engine_family=member(EngineFamily, "engine_family", engine_family),
        granularity=member(Granularity, "granularity", granularity),
        tensor_specs=tensors,
        dims=dims,
        layout=Layout(
            page_tokens=page_tokens,
            arrangement=member(Arrangement, "layout.arrangement", arrangement),
            dimension_order=member(DimensionOrder, "layout.dimension_order", dimension_order),
        ),
        quantization=Quantization(scheme=scheme, scale_tensors=scales),
        compatibility_flags=frozenset(
            member(Flag, "compatibility_flags", flag) for flag in compatibility_flags
        ),
        reuse=reuse,
    )


def tensor(name: str, role: Role, dtype: DType, axes: tuple[str, ...], layers: int | None) -> TensorSpec:
    """Spec whose axes begin with `layers` where the page has them."""
    return TensorSpec(name=name, role=role, dtype=dtype, shape=axes if layers is None else (LAYERS, *axes))


def scale(payload: TensorSpec, axes: tuple[str, ...]) -> TensorSpec:
    """Float32 scales of a payload, one for every index of `axes`."""
    return TensorSpec(name=f"{payload.name}_scale", role=Role.SCALE, dtype=DType.FLOAT32, shape=axes)


def scales(
    scheme: Scheme, payloads: Iterable[TensorSpec], fp8: Container[str], integer: Container[str]
) -> tuple[TensorSpec, ...]:
    """The scales of those `payloads` that `scheme` quantises: one for every index of the axes that do not share one.

    `fp8` and `integer` name the axes along which numbers share a scale under either sort of scheme.
    """
    if scheme is Scheme.NONE:
        return ()
    shared = fp8 if scheme in FP8 else integer
    return tuple(
        scale(payload, tuple(axis for axis in payload.shape if axis not in shared))
        for payload in payloads
        if payload.dtype is PAYLOAD_DTYPE[scheme]
    )


def sizes(**given: int | None) -> dict[str, int]:
    """The sizes that were given; None leaves an optional axis out."""
    return {name: size for name, size in given.items() if size is not None}
