"""What the constructors of the kinds share: words to members, sizes to dims, payloads to their scale tensors.

Owns no rule: whatever is built here is checked by the descriptor itself. Knows no kind.
"""

from collections.abc import Iterable

from nexuskv.contract.checks import LAYERS, in_order
from nexuskv.contract.dtypes import DType
from nexuskv.contract.tensors import Layout, Quantization, TensorSpec
from nexuskv.contract.vocabulary import Arrangement, DimensionOrder, Flag, Role, Scheme, member

PREFIX_FLAGS = (Flag.EXACT_REUSE, Flag.PREFIX_REUSE)
"""What pages keyed by their tokens allow unless the caller says otherwise."""


def dims(**sizes: int | None) -> dict[str, int]:
    """The sizes that were given; None leaves an optional axis out."""
    return {name: size for name, size in sizes.items() if size is not None}


def layout(page_tokens: int, arrangement: str, dimension_order: str = DimensionOrder.NHD) -> Layout:
    """Layout with the stride left to be derived."""
    return Layout(
        page_tokens=page_tokens,
        arrangement=member(Arrangement, "layout.arrangement", arrangement),
        dimension_order=member(DimensionOrder, "layout.dimension_order", dimension_order),
    )


def tensor(name: str, role: Role, dtype: DType, axes: tuple[str, ...], layers: int | None) -> TensorSpec:
    """Spec whose axes begin with `layers` where the page has them."""
    return TensorSpec(name=name, role=role, dtype=dtype, shape=axes if layers is None else (LAYERS, *axes))


def ordered(axes: tuple[str, ...], dimension_order: str) -> tuple[str, ...]:
    """Axes given in NHD order, brought into the named order."""
    return in_order(axes, member(DimensionOrder, "layout.dimension_order", dimension_order))


def scale(payload: TensorSpec, axes: tuple[str, ...]) -> TensorSpec:
    """Float32 scales of a payload, one for every index of `axes`."""
    return TensorSpec(name=f"{payload.name}_scale", role=Role.SCALE, dtype=DType.FLOAT32, shape=axes)


def quantization(scheme: Scheme, tensors: Iterable[TensorSpec]) -> Quantization:
    """The scheme with the scale tensors found among `tensors`."""
    return Quantization(
        scheme=scheme, scale_tensors=tuple(spec.name for spec in tensors if spec.role is Role.SCALE)
    )


def flags(words: Iterable[str]) -> frozenset[Flag]:
    """Flags from their words."""
    return frozenset(member(Flag, "compatibility_flags", word) for word in words)
