"""DeepSeek sparse attention: blocks of keys and values that a selector chooses among, and the selector's own keys.

Owns the kind DSA_SPARSE and its two constructors. Knows no model; `presets` does.

    X in R^(layers x K_topk x S_block x H x D), I in Z^(layers x K_topk); `layers` may be left out
    indexer keys in R^(layers x S x d_index), one a token of the page

I numbers the blocks of the page, layer by layer: I[k] is the number of block X[k] in its sequence. A reader that was
told block numbers by the selector gets just those blocks (`Hit.blocks`, `Page.blocks`).

A page without its indexer keys is no hit, and the contract leaves no way to make one. Either they are a tensor of the
same page, which commits and leaves as a whole; or the engine keeps them in a pool of their own, then `dsa_indexer`
describes that pool, and a group binds it to the pages it belongs to.
Source: DeepSeek-V3.2-Exp, "Boosting Long-Context Efficiency with DeepSeek Sparse Attention", section 1.
"""

from typing import ClassVar, Final, Unpack

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import AllPages
from nexuskv.contract.tensors import LAYERS, PAGE_TOKENS, TensorSpec
from nexuskv.contract.vocabulary import Granularity, Role, Scheme, member

_BLOCK_AXES: Final = ("top_k", "block_tokens", "kv_heads", "head_dim")
_INDEXER_AXES: Final = (PAGE_TOKENS, "index_dim")
_BLOCKS: Final = frozenset({Role.SPARSE_BLOCK, Role.SELECTOR_INDEX})


class DsaSparse(Descriptor, tag="DSA_SPARSE", frozen=True, kw_only=True):
    """Pages of selected blocks, with or without indexer keys; or indexer keys alone."""

    axes: ClassVar = {
        Role.SPARSE_BLOCK: _BLOCK_AXES,
        Role.SELECTOR_INDEX: _BLOCK_AXES[:1],
        Role.INDEXER_K: _INDEXER_AXES,
    }
    forms: ClassVar = (_BLOCKS, _BLOCKS | {Role.INDEXER_K}, frozenset({Role.INDEXER_K}))
    block_roles: ClassVar = (Role.SPARSE_BLOCK, Role.SELECTOR_INDEX)
    interleaved_axes: ClassVar = (LAYERS,)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages,)


def dsa(
    descriptor_id: str,
    *,
    top_k: int,
    block_tokens: int,
    kv_heads: int,
    head_dim: int,
    dtype: str,
    layers: int | None = None,
    index_dim: int | None = None,
    index_dtype: str | None = None,
    page_tokens: int | None = None,
    quantization: str = Scheme.NONE,
    **common: Unpack[build.Common],
) -> DsaSparse:
    """Descriptor with tensors "blocks" of `dtype`, "selector" int32 and, with an `index_dim`, "indexer_k".

    `page_tokens` is how far a page reaches: top_k * block_tokens when left out, which holds every block of it. Indexer
    keys are of `index_dtype`, or `dtype` when left out. What the scheme quantises has float32 scales: blocks one for
    each block and head under fp8, one for each token and head under int8 and int4; indexer keys one a token. `common`
    is engine_family (required), granularity, arrangement and compatibility_flags. Raises DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    blocks = build.tensor("blocks", Role.SPARSE_BLOCK, member(DType, "dtype", dtype), _BLOCK_AXES, layers)
    selector = build.tensor("selector", Role.SELECTOR_INDEX, DType.INT32, _BLOCK_AXES[:1], layers)
    tensors: tuple[TensorSpec, ...] = (blocks, selector)
    if index_dim is not None:
        tensors += (_indexer(index_dtype or dtype, layers),)
    common.setdefault("granularity", Granularity.BLOCK)
    return build.assemble(
        DsaSparse,
        descriptor_id,
        (*tensors, *_scales(scheme, tensors)),
        build.sizes(
            layers=layers,
            top_k=top_k,
            block_tokens=block_tokens,
            kv_heads=kv_heads,
            head_dim=head_dim,
            index_dim=index_dim,
        ),
        top_k * block_tokens if page_tokens is None else page_tokens,
        scheme=scheme,
        **common,
    )


def dsa_indexer(
    descriptor_id: str,
    *,
    index_dim: int,
    dtype: str,
    layers: int | None = None,
    page_tokens: int = 64,
    quantization: str = Scheme.NONE,
    **common: Unpack[build.Common],
) -> DsaSparse:
    """Descriptor of indexer keys alone, "indexer_k" of `dtype`, for engines that keep them in a pool of their own.

    Where the scheme quantises them they have "indexer_k_scale", float32, one a token. `common` as for `dsa`. Raises
    DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    tensors = (_indexer(dtype, layers),)
    return build.assemble(
        DsaSparse,
        descriptor_id,
        (*tensors, *_scales(scheme, tensors)),
        build.sizes(layers=layers, index_dim=index_dim),
        page_tokens,
        scheme=scheme,
        **common,
    )


def _indexer(dtype: str, layers: int | None) -> TensorSpec:
    return build.tensor(
        "indexer_k", Role.INDEXER_K, member(DType, "index_dtype", dtype), _INDEXER_AXES, layers
    )


def _scales(scheme: Scheme, tensors: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    within = ("head_dim", "index_dim")
    return build.scales(scheme, tensors, (*within, "block_tokens"), within)
