"""Multi-head, grouped-query and multi-query attention: the keys and values of a page of tokens.

Owns the kind MHA_KV and its constructor. Knows no model; `presets` does.

    K, V in R^(layers x S x H_kv x D) in NHD order, R^(layers x H_kv x S x D) in HND order; `layers` may be left out
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import AllPages, Reuse, Window
from nexuskv.contract.tensors import PAGE_TOKENS, TensorSpec
from nexuskv.contract.vocabulary import EngineFamily, Granularity, Role, Scheme, member

_AXES: Final = (PAGE_TOKENS, "kv_heads", "head_dim")
_FP8: Final = (Scheme.FP8_E4M3, Scheme.FP8_E5M2)


class MhaKv(Descriptor, tag="MHA_KV", frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Keys and values of attention, grouped-query and multi-query attention included."""

    axes: ClassVar = {Role.KEY: _AXES, Role.VALUE: _AXES}
    interleaved_axes: ClassVar = ("layers",)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages, Window)


def mha(
    descriptor_id: str,
    *,
    kv_heads: int,
    head_dim: int,
    dtype: str,
    engine_family: str,
    layers: int | None = None,
    page_tokens: int = 16,
    granularity: str = Granularity.PAGE,
    arrangement: str = "separate",
    dimension_order: str = "NHD",
    quantization: str = Scheme.NONE,
    compatibility_flags: Iterable[str] = build.PREFIX_FLAGS,
    reuse: Reuse = AllPages(),
) -> MhaKv:
    """Descriptor with tensors "key" and "value" of `dtype`, the type that is stored.

    A quantised page has "key_scale" and "value_scale" too, float32: one for each layer and KV head for fp8, one for
    each layer, token and KV head for int8 and int4. Raises DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    axes = build.ordered(_AXES, dimension_order)
    stored = member(DType, "dtype", dtype)
    payloads = [build.tensor("key", Role.KEY, stored, axes, layers)]
    payloads.append(build.tensor("value", Role.VALUE, stored, axes, layers))
    tensors = (*payloads, *_scales(scheme, payloads))
    return MhaKv(
        descriptor_id=descriptor_id,
        engine_family=member(EngineFamily, "engine_family", engine_family),
        granularity=member(Granularity, "granularity", granularity),
        tensor_specs=tensors,
        dims=build.dims(layers=layers, kv_heads=kv_heads, head_dim=head_dim),
        layout=build.layout(page_tokens, arrangement, dimension_order),
        quantization=build.quantization(scheme, tensors),
        compatibility_flags=build.flags(compatibility_flags),
        reuse=reuse,
    )


def _scales(scheme: Scheme, payloads: Iterable[TensorSpec]) -> list[TensorSpec]:
    if scheme is Scheme.NONE:
        return []
    dropped = {"head_dim", PAGE_TOKENS} if scheme in _FP8 else {"head_dim"}
    return [build.scale(spec, tuple(axis for axis in spec.shape if axis not in dropped)) for spec in payloads]
