"""The closed word lists of a descriptor: engines, granularities, roles, layouts, schemes and flags.

Owns which words exist and how a word given by a caller becomes a member; the wire form of a member is its value.
Knows nothing of what a word implies: sizes are `dtypes`, bytes are `placement`, and a kind says which roles it needs.
"""

from enum import StrEnum
from typing import TypeVar

from nexuskv.errors import DescriptorError


class EngineFamily(StrEnum):
    """Who computes the state; does not by itself make two equal physical contracts incompatible."""

    VLLM = "VLLM"
    SGLANG = "SGLANG"
    TENSORRT_LLM = "TENSORRT_LLM"
    CXX_FFI = "CXX_FFI"


class Granularity(StrEnum):
    """What its engine calls a page."""

    TOKEN = "TOKEN"
    PAGE = "PAGE"
    BLOCK = "BLOCK"
    SEGMENT = "SEGMENT"
    CHECKPOINT = "CHECKPOINT"


class Role(StrEnum):
    """What a tensor is to the model; a kind says which roles it needs and which axes each has."""

    KEY = "KEY"
    VALUE = "VALUE"
    LATENT_KV = "LATENT_KV"
    ROPE_K = "ROPE_K"
    RECURRENT_STATE = "RECURRENT_STATE"
    DECAY = "DECAY"
    CONV_STATE = "CONV_STATE"
    SPARSE_BLOCK = "SPARSE_BLOCK"
    SELECTOR_INDEX = "SELECTOR_INDEX"
    INDEXER_K = "INDEXER_K"
    SUMMARY = "SUMMARY"
    SELECTED = "SELECTED"
    CROSS_KEY = "CROSS_KEY"
    CROSS_VALUE = "CROSS_VALUE"
    SCALE = "SCALE"


class Arrangement(StrEnum):
    """How the tensors of a page share its bytes; `placement` draws both."""

    SEPARATE = "separate"
    INTERLEAVED = "interleaved"


class DimensionOrder(StrEnum):
    """Whether a token's heads are neighbours (NHD) or a head's tokens are (HND)."""

    NHD = "NHD"
    HND = "HND"


class Scheme(StrEnum):
    """How the stored numbers were quantised."""

    NONE = "none"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    INT4 = "int4"
    INT8_PER_TOKEN_HEAD = "int8_per_token_head_f32_scale_v1"


class Flag(StrEnum):
    """What an engine may do with the pages (`permissions`); no part of the physical contract."""

    EXACT_REUSE = "EXACT_REUSE"
    PREFIX_REUSE = "PREFIX_REUSE"
    COW_BRANCH = "COW_BRANCH"
    ZERO_COPY_RDMA = "ZERO_COPY_RDMA"


Word = TypeVar("Word", bound=StrEnum)


def member(words: type[Word], field: str, value: str) -> Word:
    """The member of `words` that `value` spells; raises DescriptorError(field) that lists the words there are."""
    try:
        return words(value)
    except ValueError:
        raise DescriptorError(field, unknown_word(words, value)) from None


def unknown_word(words: type[StrEnum], value: object) -> str:
    """The sentence that refuses `value` and lists what would have been accepted."""
    return f"{value!r} is unknown; use one of {', '.join(words)}"
