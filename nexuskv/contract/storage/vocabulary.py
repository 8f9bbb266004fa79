"""The closed word lists of a KV storage declaration.

Owns which words exist. Knows nothing of what a word demands of the parts around it; `validation` does.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from nexuskv.contract.dtypes import DType


class ElementType(StrEnum):
    """What a tensor's elements are, in the words of a model program."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    F8_E4M3 = "F8_E4M3"
    F8_E5M2 = "F8_E5M2"
    I8 = "I8"
    U8 = "U8"
    I32 = "I32"
    U32 = "U32"

    @property
    def dtype(self) -> DType:
        """The same type in the words of a descriptor."""
        return _DTYPES[self]


_DTYPES: Final = {
    ElementType.F32: DType.FLOAT32,
    ElementType.F16: DType.FLOAT16,
    ElementType.BF16: DType.BFLOAT16,
    ElementType.F8_E4M3: DType.FLOAT8_E4M3FN,
    ElementType.F8_E5M2: DType.FLOAT8_E5M2,
    ElementType.I8: DType.INT8,
    ElementType.U8: DType.UINT8,
    ElementType.I32: DType.INT32,
    ElementType.U32: DType.UINT32,
}


class Lifetime(StrEnum):
    """How long a state lives: with its request, with its sequence, or for one step of the program."""

    REQUEST = "request"
    SEQUENCE = "sequence"
    STEP = "step"


class Initialisation(StrEnum):
    """What a state holds before its first write."""

    ZEROED = "zeroed"
    UNDEFINED = "undefined"


class Contents(StrEnum):
    """What a checkpoint at a completed boundary keeps: every position before it, or the value at it."""

    PREFIX_POSITIONS = "prefix_positions"
    BOUNDARY_VALUE = "boundary_value"


class InputDependency(StrEnum):
    """What must be equal for a checkpoint to be right: the tokens up to it, or the whole input."""

    EXACT_TOKEN_PREFIX = "exact_token_prefix"
    ENTIRE_TOKEN_INPUT = "entire_token_input"


class Format(StrEnum):
    """How a profile stores keys and values; the value is the tag of its declarations."""

    F16 = "f16"
    INT8_PER_TOKEN_HEAD_F32_SCALE_V1 = "int8_per_token_head_f32_scale_v1"


WORDS: Final[Mapping[str, type[StrEnum]]] = MappingProxyType(
    {
        "element_type": ElementType,
        "lifetime": Lifetime,
        "initialisation": Initialisation,
        "contents": Contents,
        "input_dependency": InputDependency,
    }
)
"""By the field that holds one of them, so that a refusal can list them."""
