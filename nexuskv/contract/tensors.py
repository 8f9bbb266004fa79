"""The parts of a descriptor that describe tensors: their specs, the bound dimensions, the layout, the quantisation.

Owns what each part says for itself and refuses what is wrong in it alone. Knows nothing of the other parts: what only
shows when parts meet (an unbound name, a missing role) is checked by `checks`.
"""

import re
from typing import Annotated, Any, Final, NoReturn

import msgspec

from nexuskv.contract.dtypes import DType
from nexuskv.contract.vocabulary import Arrangement, DimensionOrder, Role, Scheme
from nexuskv.errors import DescriptorError

PAGE_TOKENS: Final = "page_tokens"
"""The one dimension that the layout binds; every other name is bound by `dims`."""

MAX_RANK: Final = 8
MAX_TENSORS: Final = 64
NAME_PATTERN: Final = r"^[a-z][a-z0-9_]{0,63}$"

Name = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": NAME_PATTERN})]
Size = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": 2**63 - 1})]


def check_name(field: str, name: str) -> None:
    """Refuse what is not a lower-case identifier of 1-64 characters."""
    if not re.fullmatch(NAME_PATTERN.rstrip("$"), name):
        raise DescriptorError(field, f"{name!r} is no name; use 1-64 of [a-z0-9_], beginning with a letter")


class Dims(dict[str, int]):
    """Immutable mapping of dimension names to sizes; a dict, so that every encoder takes it."""

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("a descriptor is immutable; build another one")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict sets it to None; this one cannot change
        return hash(frozenset(self.items()))


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One named tensor of a page; `shape` names its axes from the slowest to the fastest of its logical order."""

    name: Name
    role: Role
    dtype: DType
    shape: tuple[Name, ...]

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if len(self.shape) > MAX_RANK:
            raise DescriptorError("shape", f"{len(self.shape)} axes; {MAX_RANK} is the most")
        for axis in self.shape:
            check_name("shape", axis)
        if len(set(self.shape)) < len(self.shape):
            raise DescriptorError("shape", f"an axis is named twice in {list(self.shape)}")


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a page is laid out; `stride_bytes` is derived when left out and checked when declared."""

    page_tokens: Size
    arrangement: Arrangement = Arrangement.SEPARATE
    dimension_order: DimensionOrder = DimensionOrder.NHD
    stride_bytes: Size | None = None

    def __post_init__(self) -> None:
        if self.page_tokens < 1:
            raise DescriptorError("page_tokens", f"{self.page_tokens} tokens a page; it must be 1 or more")


class Quantization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How stored numbers were quantised; the i-th scale tensor belongs to the i-th quantised tensor of the page."""

    scheme: Scheme = Scheme.NONE
    scale_tensors: tuple[Name, ...] = ()


PAYLOAD_DTYPE: Final = {
    Scheme.FP8_E4M3: DType.FLOAT8_E4M3FN,
    Scheme.FP8_E5M2: DType.FLOAT8_E5M2,
    Scheme.INT4: DType.INT4,
    Scheme.INT8_PER_TOKEN_HEAD: DType.INT8,
}
"""Element type of the tensors that a scheme quantises."""
