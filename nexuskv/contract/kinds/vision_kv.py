"""Vision and video: what a model keeps of an image or of frames, found by their content.

Owns the kind VISION_KV and its constructor. Knows no model; `presets` does.

    K in R^(layers x T x H x W x D): keys rotated by their place in time, height and width
    cross-attention keys and values in R^(layers x T x H x W x H_kv x D_h), where text attends to them

`layers` may be left out. A page is one input, or one tile or span of frames of it. It is found by a hash of that input
and by no token (`keys.content_keys`), so it belongs to no chain: no page needs another one to be of use, and each is
evicted for itself. The input must be all that the state was computed from, or the same key will stand for two states.
Source: Qwen2-VL, arXiv 2409.12191, section 2.1 (M-RoPE).
"""

from typing import ClassVar, Final, Unpack

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import AllPages
from nexuskv.contract.tensors import LAYERS, TensorSpec
from nexuskv.contract.vocabulary import Flag, Granularity, Role, Scheme, member

_GRID: Final = ("frames", "grid_height", "grid_width")
_KEY_AXES: Final = (*_GRID, "key_dim")
_CROSS_AXES: Final = (*_GRID, "kv_heads", "head_dim")
_CROSS: Final = frozenset({Role.CROSS_KEY, Role.CROSS_VALUE})


class VisionKv(Descriptor, tag="VISION_KV", frozen=True, kw_only=True):
    """Pages of one input each: its spatio-temporal keys, what text attends to, or both."""

    axes: ClassVar = {Role.KEY: _KEY_AXES, Role.CROSS_KEY: _CROSS_AXES, Role.CROSS_VALUE: _CROSS_AXES}
    forms: ClassVar = (frozenset({Role.KEY}), _CROSS | {Role.KEY}, _CROSS)
    content_keyed: ClassVar = True
    interleaved_axes: ClassVar = (LAYERS,)
    schemes: ClassVar = frozenset(Scheme)
    reuse_rules: ClassVar = (AllPages,)


def vision(
    descriptor_id: str,
    *,
    grid_height: int,
    grid_width: int,
    dtype: str,
    frames: int = 1,
    layers: int | None = None,
    key_dim: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    quantization: str = Scheme.NONE,
    **common: Unpack[build.Common],
) -> VisionKv:
    """Descriptor with "key" of `dtype` given a `key_dim`, "cross_key" and "cross_value" given `kv_heads`, `head_dim`.

    A page counts frames * grid_height * grid_width tokens. A quantised page has a scale tensor for each of them,
    float32: for fp8 one for each frame (and KV head), for int8 and int4 one for each place (and KV head). `common` is
    engine_family (required), granularity, arrangement and compatibility_flags. Raises DescriptorError.
    """
    scheme = member(Scheme, "quantization.scheme", quantization)
    tensors = _tensors(
        member(DType, "dtype", dtype), layers, keys=key_dim is not None, cross=kv_heads is not None
    )
    common.setdefault("granularity", Granularity.SEGMENT)
    common.setdefault("compatibility_flags", (Flag.EXACT_REUSE, Flag.ZERO_COPY_RDMA))
    within = ("key_dim", "head_dim")
    return build.assemble(
        VisionKv,
        descriptor_id,
        (*tensors, *build.scales(scheme, tensors, (*within, "grid_height", "grid_width"), within)),
        build.sizes(
            layers=layers,
            frames=frames,
            grid_height=grid_height,
            grid_width=grid_width,
            key_dim=key_dim,
            kv_heads=kv_heads,
            head_dim=head_dim,
        ),
        frames * grid_height * grid_width,
        scheme=scheme,
        **common,
    )


def _tensors(stored: DType, layers: int | None, *, keys: bool, cross: bool) -> tuple[TensorSpec, ...]:
    tensors: tuple[TensorSpec, ...] = ()
    if keys:
        tensors += (build.tensor("key", Role.KEY, stored, _KEY_AXES, layers),)
    if cross:
        tensors += (
            build.tensor("cross_key", Role.CROSS_KEY, stored, _CROSS_AXES, layers),
            build.tensor("cross_value", Role.CROSS_VALUE, stored, _CROSS_AXES, layers),
        )
    return tensors
