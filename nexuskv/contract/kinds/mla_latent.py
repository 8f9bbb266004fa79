"""Multi-head latent attention: one latent and one decoupled RoPE key a token, shared by all heads.

Owns the kind MLA_LATENT and its constructor. Knows no model; `presets` does.

    c_KV in R^(layers x S x d_c), k_R in R^(layers x S x d_R); `layers` may be left out

Interleaved, a token's latent and RoPE key are neighbours, (layers, S, d_c + d_R), as vLLM and FlashMLA have them.
Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
"""

from typing import ClassVar, Final, Unpack

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import AllPages, Reuse, Window
from nexuskv.contract.tensors import LAYERS, PAGE_TOKENS, TensorSpec
from nexuskv.contract.vocabulary import Role, Scheme, member
from nexuskv.errors import DescriptorError

FP8_TILE: Final = 128
"""Latent elements that share a scale under fp8, as in FlashMLA: 512 + 4 * 4 + 64 * 2 = 656 bytes a token."""

_LATENT_AXES: Final = (PAGE_TOKENS, "latent_dim")
_ROPE_AXES: Final = (PAGE_TOKENS, "rope_dim")


class MlaLatent(Descriptor, tag="MLA_LATENT", frozen=True, kw_only=True):
    """Latent pages, pooled and moved as they are."""

    axes: ClassVar = {Role.LATENT_KV: _LATENT_AXES, Role.ROPE_K: _ROPE_AXES}
    interleaved_axes: ClassVar = (LAYERS, PAGE_TOKENS)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages, Window)


def mla(
    descriptor_id: str,
    *,
    dtype: str,
    layers: int | None = None,
    latent_dim: int = 512,
    rope_dim: int = 64,
    page_tokens: int = 16,
    quantization: str = Scheme.NONE,
    rope_dtype: str | None = None,
    reuse: Reuse = AllPages(),
    **common: Unpack[build.Common],
) -> MlaLatent:
    """Descriptor with tensors "latent" of `dtype` and "rope_k" of `rope_dtype`, the types that are stored.

    `rope_dtype` is `dtype` when left out, but bfloat16 where the latent is quantised: the RoPE key is not. A
    quantised page has "latent_scale" too, float32: for fp8 one for every 128 elements of a latent, for int8 and int4
    one a latent. `common` is engine_family (required), granularity, arrangement and compatibility_flags. Raises
    DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    rope_dtype = rope_dtype or (dtype if scheme is Scheme.NONE else DType.BFLOAT16)
    latent = build.tensor("latent", Role.LATENT_KV, member(DType, "dtype", dtype), _LATENT_AXES, layers)
    rope_k = build.tensor("rope_k", Role.ROPE_K, member(DType, "rope_dtype", rope_dtype), _ROPE_AXES, layers)
    tiles = _tiles(scheme, latent_dim)
    return build.assemble(
        MlaLatent,
        descriptor_id,
        (latent, *_scales(scheme, latent, tiles), rope_k),
        build.sizes(layers=layers, latent_dim=latent_dim, rope_dim=rope_dim, latent_tiles=tiles),
        page_tokens,
        scheme=scheme,
        reuse=reuse,
        **common,
    )


def _tiles(scheme: Scheme, latent_dim: int) -> int | None:
    """Scales of one latent under fp8; None where a scheme has no tiles."""
    if scheme not in (Scheme.FP8_E4M3, Scheme.FP8_E5M2):
        return None
    if latent_dim % FP8_TILE:
        raise DescriptorError("dims.latent_dim", f"{latent_dim} is no multiple of {FP8_TILE}, the fp8 tile")
    return latent_dim // FP8_TILE


def _scales(scheme: Scheme, latent: TensorSpec, tiles: int | None) -> tuple[TensorSpec, ...]:
    if scheme is Scheme.NONE:
        return ()
    return (
        build.scale(latent, latent.shape[:-1] if tiles is None else (*latent.shape[:-1], "latent_tiles")),
    )
