"""The parts of a descriptor that describe tensors: specs, bound dimensions, layout, quantisation.

Owns what each part says for itself and refuses what is wrong in it alone. Knows nothing of the other parts: what only
shows when parts meet (an unbound name, a missing role) is checked by `checks`.
"""

import re
from typing import Annotated, Any, Final

import msgspec

from nexuskv.contract.dtypes import DType
from nexuskv.contract.faults import hold_to_types
from nexuskv.contract.vocabulary import Arrangement, DimensionOrder, Role, Scheme
from nexuskv.errors import DescriptorError

PAGE_TOKENS: Final = "page_tokens"
"""The one dimension that the layout binds; every other name is bound by `dims`."""

LAYERS: Final = "layers"
"""The optional leading axis of every tensor: a page holds one layer, or all of them."""

MAX_RANK: Final = 8
MAX_SIZE: Final = 2**63 - 1
"""Sizes and offsets are signed 64-bit wherever a file is mapped."""

_NAME: Final = r"[a-z][a-z0-9_]{0,63}"

Name = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{_NAME}$"})]
Size = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MAX_SIZE})]


def check_name(field: str, name: str) -> None:
    """Refuse what is not a lower-case identifier of 1-64 characters."""
    if not re.fullmatch(_NAME, name):
        raise DescriptorError(field, f"{name!r} is no name; use 1-64 of [a-z0-9_], beginning with a letter")


def check_size(field: str, size: int) -> None:
    """Refuse what is not positive or does not fit signed 64 bits."""
    if not 1 <= size <= MAX_SIZE:
        raise DescriptorError(field, f"{size} is out of bounds; use 1 to {MAX_SIZE}")


def _refuse_change(*_args: object, **_kwargs: object) -> None:
    raise TypeError("a descriptor is immutable; build another one")


_immutable: Any = _refuse_change  # Any, since no signature fits all the methods it stands in for


class Dims(dict[str, int]):
    """Immutable sizes of the named dimensions; a dict, so that every encoder takes it."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _immutable
    clear = pop = popitem = setdefault = update = _immutable

    def __hash__(self) -> int:  # type: ignore[override]  # dict declares None; this one cannot change, so it has one
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type["Dims"], tuple[dict[str, int]]]:
        return Dims, (dict(self),)  # copying item by item would be refused


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One named tensor of a page; `shape` names its axes, the slowest first."""

    name: Name
    role: Role
    dtype: DType
    shape: tuple[Name, ...]

    def __post_init__(self) -> None:
        hold_to_types(self)
        check_name("name", self.name)
        if len(self.shape) > MAX_RANK:
            raise DescriptorError("shape", f"{len(self.shape)} axes; {MAX_RANK} is the most")
        for axis in self.shape:
            check_name("shape", axis)
        if len(set(self.shape)) < len(self.shape):
            raise DescriptorError("shape", f"an axis occurs twice in {list(self.shape)}; name each once")


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a page is laid out; the descriptor derives `stride_bytes` when left out, and checks it when declared."""

    page_tokens: Size
    arrangement: Arrangement = Arrangement.SEPARATE
    dimension_order: DimensionOrder = DimensionOrder.NHD
    stride_bytes: Size | None = None

    def __post_init__(self) -> None:
        hold_to_types(self)
        check_size(PAGE_TOKENS, self.page_tokens)
        if self.stride_bytes is not None:
            check_size("stride_bytes", self.stride_bytes)


class Quantization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How numbers were quantised; the i-th scale tensor belongs to the i-th tensor of the scheme's element type."""

    scheme: Scheme = Scheme.NONE
    scale_tensors: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        hold_to_types(self)
