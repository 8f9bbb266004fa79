"""Mamba-2, selective state space: a snapshot of the recurrent state and of the convolution's window.

Owns the kind SSM_MAMBA2 and its constructor. Knows no model; `presets` does.

    h_t in R^(layers x H x N x D), conv in R^(layers x (d_inner + 2 * G * N) x K); `layers` may be left out

H heads of D, d_inner = H * D, N the state size, G groups, K the convolution's width. A page is the snapshot after its
last token; its size does not depend on the context. Engines that hold a head's state as (D, N), as mamba_ssm does,
write through `page["state"].swapaxes(-1, -2)`. Source: Mamba-2, arXiv 2405.21060, section 7.
"""

from typing import ClassVar, Final, Unpack

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import LastCheckpoint
from nexuskv.contract.tensors import LAYERS, check_size
from nexuskv.contract.vocabulary import Granularity, Role, Scheme, member

_STATE_AXES: Final = ("heads", "state_size", "head_dim")
_CONV_AXES: Final = ("conv_channels", "conv_width")


class SsmMamba2(Descriptor, tag="SSM_MAMBA2", frozen=True, kw_only=True):
    """Snapshots at page boundaries; the last one alone restores its prefix."""

    axes: ClassVar = {Role.RECURRENT_STATE: _STATE_AXES, Role.CONV_STATE: _CONV_AXES}
    interleaved_axes: ClassVar = (LAYERS,)
    schemes: ClassVar = frozenset({Scheme.NONE})
    reuse_rules: ClassVar = (LastCheckpoint,)


def mamba2(
    descriptor_id: str,
    *,
    heads: int,
    head_dim: int,
    state_size: int,
    dtype: str,
    layers: int | None = None,
    groups: int = 1,
    conv_width: int = 4,
    page_tokens: int = 256,
    state_dtype: str | None = None,
    conv_channels: int | None = None,
    **common: Unpack[build.Common],
) -> SsmMamba2:
    """Descriptor with tensors "state" of `state_dtype`, or `dtype` when left out, and "conv" of `dtype`.

    `conv_channels` is d_inner + 2 * G * N when left out; Mamba, the first one, convolves its d_inner alone.
    `page_tokens` is the distance between two snapshots. `common` is engine_family (required), granularity,
    arrangement and compatibility_flags. Raises DescriptorError.
    """
    check_size("groups", groups)
    stored = member(DType, "dtype", dtype)
    state = member(DType, "state_dtype", state_dtype or dtype)
    common.setdefault("granularity", Granularity.CHECKPOINT)
    return build.assemble(
        SsmMamba2,
        descriptor_id,
        (
            build.tensor("state", Role.RECURRENT_STATE, state, _STATE_AXES, layers),
            build.tensor("conv", Role.CONV_STATE, stored, _CONV_AXES, layers),
        ),
        build.sizes(
            layers=layers,
            heads=heads,
            state_size=state_size,
            head_dim=head_dim,
            conv_channels=conv_channels or heads * head_dim + 2 * groups * state_size,
            conv_width=conv_width,
        ),
        page_tokens,
        reuse=LastCheckpoint(),
        **common,
    )
