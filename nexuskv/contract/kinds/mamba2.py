"""Mamba-2, selective state space: a snapshot of the recurrent state and of the convolution's window.

Owns the kind SSM_MAMBA2 and its constructor. Knows no model; `presets` does.

    h_t in R^(layers x H x N x D), conv in R^(layers x (d_inner + 2 * G * N) x K); `layers` may be left out

H heads of D, d_inner = H * D, N the state size, G groups, K the convolution's width. The size does not depend on the
context: a page is the snapshot after its last token. Source: Mamba-2, arXiv 2405.21060, section 7.
"""

from collections.abc import Iterable
from typing import ClassVar

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import LastCheckpoint
from nexuskv.contract.vocabulary import EngineFamily, Granularity, Role, Scheme, member

_STATE_AXES = ("heads", "state_size", "head_dim")
_CONV_AXES = ("conv_channels", "conv_width")


class SsmMamba2(
    Descriptor, tag="SSM_MAMBA2", frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """Snapshots at page boundaries; the last one alone restores its prefix."""

    axes: ClassVar = {Role.RECURRENT_STATE: _STATE_AXES, Role.CONV_STATE: _CONV_AXES}
    interleaved_axes: ClassVar = ("layers",)
    schemes: ClassVar = frozenset({Scheme.NONE})
    reuse_rules: ClassVar = (LastCheckpoint,)


def mamba2(
    descriptor_id: str,
    *,
    heads: int,
    head_dim: int,
    state_size: int,
    dtype: str,
    engine_family: str,
    layers: int | None = None,
    groups: int = 1,
    conv_width: int = 4,
    page_tokens: int = 256,
    granularity: str = Granularity.CHECKPOINT,
    arrangement: str = "separate",
    state_dtype: str | None = None,
    compatibility_flags: Iterable[str] = build.PREFIX_FLAGS,
) -> SsmMamba2:
    """Descriptor with tensors "state" of `state_dtype` (`dtype` when left out) and "conv" of `dtype`.

    `page_tokens` is the distance between two snapshots. Raises DescriptorError.
    """
    state_type = member(DType, "state_dtype", state_dtype or dtype)
    conv_type = member(DType, "dtype", dtype)
    return SsmMamba2(
        descriptor_id=descriptor_id,
        engine_family=member(EngineFamily, "engine_family", engine_family),
        granularity=member(Granularity, "granularity", granularity),
        tensor_specs=(
            build.tensor("state", Role.RECURRENT_STATE, state_type, _STATE_AXES, layers),
            build.tensor("conv", Role.CONV_STATE, conv_type, _CONV_AXES, layers),
        ),
        dims=build.dims(
            layers=layers,
            heads=heads,
            state_size=state_size,
            head_dim=head_dim,
            conv_channels=heads * head_dim + 2 * groups * state_size,
            conv_width=conv_width,
        ),
        layout=build.layout(page_tokens, arrangement),
        compatibility_flags=build.flags(compatibility_flags),
        reuse=LastCheckpoint(),
    )
