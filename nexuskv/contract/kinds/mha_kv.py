"""Multi-head, grouped-query and multi-query attention: the keys and values of a page of tokens.

Owns the kind MHA_KV and its constructor. Knows no model; `presets` does.

    K, V in R^(layers x S x H_kv x D) in NHD order, R^(layers x H_kv x S x D) in HND order; `layers` may be left out

Interleaved, a layer's K and V are neighbours: (layers, 2, S, H_kv, D), as FlashInfer has its pages.
"""

from typing import ClassVar, Final, Unpack

from nexuskv.contract.checks import in_order
from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import AllPages, Reuse, Window
from nexuskv.contract.tensors import LAYERS, PAGE_TOKENS, TensorSpec
from nexuskv.contract.vocabulary import DimensionOrder, Role, Scheme, member

AXES: Final = (PAGE_TOKENS, "kv_heads", "head_dim")


class MhaKv(Descriptor, tag="MHA_KV", frozen=True, kw_only=True):
    """Keys and values of attention, grouped-query and multi-query attention included."""

    axes: ClassVar = {Role.KEY: AXES, Role.VALUE: AXES}
    interleaved_axes: ClassVar = (LAYERS,)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages, Window)


def mha(
    descriptor_id: str,
    *,
    kv_heads: int,
    head_dim: int,
    dtype: str,
    layers: int | None = None,
    page_tokens: int = 16,
    dimension_order: str = DimensionOrder.NHD,
    quantization: str = Scheme.NONE,
    reuse: Reuse = AllPages(),
    **common: Unpack[build.Common],
) -> MhaKv:
    """Descriptor with tensors "key" and "value" of `dtype`, the type that is stored.

    A quantised page has "key_scale" and "value_scale" too, float32: for fp8 one for each layer and KV head, for int8
    and int4 one for each layer, token and KV head. `common` is engine_family (required), granularity, arrangement and
    compatibility_flags. Raises DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    return build.assemble(
        MhaKv,
        descriptor_id,
        tensors(scheme, dtype, layers, dimension_order),
        build.sizes(layers=layers, kv_heads=kv_heads, head_dim=head_dim),
        page_tokens,
        dimension_order=dimension_order,
        scheme=scheme,
        reuse=reuse,
        **common,
    )


def tensors(scheme: Scheme, dtype: str, layers: int | None, dimension_order: str) -> tuple[TensorSpec, ...]:
    """Keys, values and their scales: what a page of attention holds, of whatever kind it is."""
    axes = in_order(AXES, member(DimensionOrder, "layout.dimension_order", dimension_order))
    stored = member(DType, "dtype", dtype)
    key = build.tensor("key", Role.KEY, stored, axes, layers)
    value = build.tensor("value", Role.VALUE, stored, axes, layers)
    return key, value, *build.scales(scheme, (key, value), ("head_dim", PAGE_TOKENS), ("head_dim",))
