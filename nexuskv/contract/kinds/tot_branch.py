"""Branches of a tree of thought or of a tree search: pages of attention that many branches share.

Owns the kind TOT_BRANCH and its constructor. Knows no model; `presets` does.

    K, V in R^(layers x S x H_kv x D), as MHA_KV has them

What a branch is (its parent entry, its depth, how many hold it) changes while it lives and is nowhere in a page: a
descriptor is immutable and says what the bytes of a page are. A tree has a kind of its own, and so keys of its own, so
that a search never finds half its thoughts in the prefixes of ordinary requests, nor those its pages.
Source: Tree of Thoughts, arXiv 2305.10601, section 3.
"""

from typing import ClassVar, Unpack

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.kinds import build, mha_kv
from nexuskv.contract.reuse import AllPages
from nexuskv.contract.tensors import LAYERS
from nexuskv.contract.vocabulary import DimensionOrder, Flag, Role, Scheme, member


class TotBranch(Descriptor, tag="TOT_BRANCH", frozen=True, kw_only=True):
    """Keys and values of a branch; a page that two branches share is one page."""

    axes: ClassVar = {Role.KEY: mha_kv.AXES, Role.VALUE: mha_kv.AXES}
    interleaved_axes: ClassVar = (LAYERS,)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages,)


def tot(
    descriptor_id: str,
    *,
    kv_heads: int,
    head_dim: int,
    dtype: str,
    layers: int | None = None,
    page_tokens: int = 16,
    dimension_order: str = DimensionOrder.NHD,
    quantization: str = Scheme.NONE,
    **common: Unpack[build.Common],
) -> TotBranch:
    """Descriptor with tensors "key" and "value" of `dtype`, and the scales that `mha` has.

    `compatibility_flags` hold COW_BRANCH too when left out. `common` is engine_family (required), granularity,
    arrangement and compatibility_flags. Raises DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    common.setdefault("compatibility_flags", (*build.PERMITTED, Flag.COW_BRANCH))
    return build.assemble(
        TotBranch,
        descriptor_id,
        mha_kv.tensors(scheme, dtype, layers, dimension_order),
        build.sizes(layers=layers, kv_heads=kv_heads, head_dim=head_dim),
        page_tokens,
        dimension_order=dimension_order,
        scheme=scheme,
        **common,
    )
