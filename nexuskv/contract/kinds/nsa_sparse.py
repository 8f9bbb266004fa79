"""Native sparse attention: a summary of every block of tokens, and the blocks themselves where they were selected.

Owns the kind NSA_SPARSE and its constructor. Knows no model; `presets` does.

    summaries in R^(layers x L / l_stride x H_kv x D), selected in R^(layers x K x l_block x H_kv x D)

`layers` may be left out. L is the tokens of a page; D is what is kept of a token and KV head, its key and its value
side by side. Blocks are numbered by their place; with K * l_block = L that is their place in the sequence. A reader
gets just those that it names (`Hit.blocks`, `Page.blocks`).
Source: Native Sparse Attention, arXiv 2502.11089, section 3.3.
"""

from typing import ClassVar, Final, Unpack

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import AllPages
from nexuskv.contract.tensors import LAYERS, check_size
from nexuskv.contract.vocabulary import Granularity, Role, Scheme, member
from nexuskv.errors import DescriptorError

_SUMMARY_AXES: Final = ("summary_blocks", "kv_heads", "head_dim")
_SELECTED_AXES: Final = ("top_k", "block_tokens", "kv_heads", "head_dim")


class NsaSparse(Descriptor, tag="NSA_SPARSE", frozen=True, kw_only=True):
    """Pages of summaries and selected blocks."""

    axes: ClassVar = {Role.SUMMARY: _SUMMARY_AXES, Role.SELECTED: _SELECTED_AXES}
    block_roles: ClassVar = (Role.SELECTED, None)
    interleaved_axes: ClassVar = (LAYERS,)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages,)


def nsa(
    descriptor_id: str,
    *,
    page_tokens: int,
    block_tokens: int,
    kv_heads: int,
    head_dim: int,
    dtype: str,
    layers: int | None = None,
    summary_stride: int | None = None,
    top_k: int | None = None,
    quantization: str = Scheme.NONE,
    **common: Unpack[build.Common],
) -> NsaSparse:
    """Descriptor with tensors "summary" and "selected" of `dtype`, the type that is stored.

    `summary_stride`, the tokens from one summary to the next, is `block_tokens` when left out and divides
    `page_tokens`; `top_k`, when left out, is every block of the page. A quantised page has "summary_scale" and
    "selected_scale" too, float32: for fp8 one for each block and KV head, for int8 and int4 one for each summary, or
    token, and KV head. `common` is engine_family (required), granularity, arrangement and compatibility_flags. Raises
    DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    stored = member(DType, "dtype", dtype)
    tensors = (
        build.tensor("summary", Role.SUMMARY, stored, _SUMMARY_AXES, layers),
        build.tensor("selected", Role.SELECTED, stored, _SELECTED_AXES, layers),
    )
    stride = block_tokens if summary_stride is None else summary_stride
    common.setdefault("granularity", Granularity.BLOCK)
    return build.assemble(
        NsaSparse,
        descriptor_id,
        (*tensors, *build.scales(scheme, tensors, ("head_dim", "block_tokens"), ("head_dim",))),
        build.sizes(
            layers=layers,
            summary_blocks=_parts("summary_stride", page_tokens, stride),
            top_k=_parts("block_tokens", page_tokens, block_tokens) if top_k is None else top_k,
            block_tokens=block_tokens,
            kv_heads=kv_heads,
            head_dim=head_dim,
        ),
        page_tokens,
        scheme=scheme,
        **common,
    )


def _parts(field: str, page_tokens: int, size: int) -> int:
    check_size(field, size)
    if page_tokens % size:
        raise DescriptorError(
            field, f"{size} does not divide the {page_tokens} tokens of a page; choose another"
        )
    return page_tokens // size
