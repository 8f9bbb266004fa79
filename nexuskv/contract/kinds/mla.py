"""Multi-head latent attention: one latent and one decoupled RoPE key a token, shared by all heads.

Owns the kind MLA_LATENT and its constructor. Knows no model; `presets` does.

    c_KV in R^(layers x S x d_c), k_R in R^(layers x S x d_R); `layers` may be left out

Interleaved, a token's latent and RoPE key are neighbours, as in the cache of vLLM and FlashMLA: (S, d_c + d_R).
Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import AllPages, Reuse, Window
from nexuskv.contract.tensors import PAGE_TOKENS, TensorSpec
from nexuskv.contract.vocabulary import EngineFamily, Flag, Granularity, Role, Scheme, member
from nexuskv.errors import DescriptorError

FP8_TILE: Final = 128
"""Latent elements that share a scale under fp8, as FlashMLA stores them: 512 + 4 * 4 + 64 * 2 = 656 bytes a token."""


class MlaLatent(
    Descriptor, tag="MLA_LATENT", frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """Latent pages, pooled and moved as they are."""

    axes: ClassVar = {Role.LATENT_KV: (PAGE_TOKENS, "latent_dim"), Role.ROPE_K: (PAGE_TOKENS, "rope_dim")}
    interleaved_axes: ClassVar = ("layers", PAGE_TOKENS)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages, Window)


def mla(
    descriptor_id: str,
    *,
    dtype: str,
    engine_family: str,
    layers: int | None = None,
    latent_dim: int = 512,
    rope_dim: int = 64,
    page_tokens: int = 16,
    granularity: str = Granularity.PAGE,
    arrangement: str = "separate",
    quantization: str = Scheme.NONE,
    rope_dtype: str | None = None,
    compatibility_flags: Iterable[str] = (*build.PREFIX_FLAGS, Flag.ZERO_COPY_RDMA),
    reuse: Reuse = AllPages(),
) -> MlaLatent:
    """Descriptor with tensors "latent" of `dtype` and "rope_k" of `rope_dtype`.

    `rope_dtype` is `dtype` when left out, or bfloat16 where the latent is quantised: the RoPE key is not. A quantised
    page has "latent_scale", float32: one for every 128 elements of a latent for fp8, one a latent for int8 and int4.
    Raises DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    rope = rope_dtype or (dtype if scheme is Scheme.NONE else DType.BFLOAT16)
    latent = build.tensor(
        "latent", Role.LATENT_KV, member(DType, "dtype", dtype), (PAGE_TOKENS, "latent_dim"), layers
    )
    rope_k = build.tensor(
        "rope_k", Role.ROPE_K, member(DType, "rope_dtype", rope), (PAGE_TOKENS, "rope_dim"), layers
    )
    tensors = (latent, *_scales(scheme, latent), rope_k)
    return MlaLatent(
        descriptor_id=descriptor_id,
        engine_family=member(EngineFamily, "engine_family", engine_family),
        granularity=member(Granularity, "granularity", granularity),
        tensor_specs=tensors,
        dims=build.dims(
            layers=layers, latent_dim=latent_dim, rope_dim=rope_dim, latent_tiles=_tiles(scheme, latent_dim)
        ),
        layout=build.layout(page_tokens, arrangement),
        quantization=build.quantization(scheme, tensors),
        compatibility_flags=build.flags(compatibility_flags),
        reuse=reuse,
    )


def _tiles(scheme: Scheme, latent_dim: int) -> int | None:
    """Scales of one latent under fp8; None where the scheme has no tiles."""
    if scheme not in (Scheme.FP8_E4M3, Scheme.FP8_E5M2):
        return None
    if latent_dim % FP8_TILE:
        raise DescriptorError("dims.latent_dim", f"{latent_dim} is no multiple of {FP8_TILE}, the fp8 tile")
    return latent_dim // FP8_TILE


def _scales(scheme: Scheme, latent: TensorSpec) -> list[TensorSpec]:
    if scheme is Scheme.NONE:
        return []
    tiles = ("latent_tiles",) if scheme in (Scheme.FP8_E4M3, Scheme.FP8_E5M2) else ()
    return [build.scale(latent, (*latent.shape[:-1], *tiles))]
