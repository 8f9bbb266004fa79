"""Kimi delta attention: the terminal state of a linear attention whose decay is one number a channel.

Owns the kind KDA_RECURRENT and its constructor. Knows no model; `presets` does.

    h_t in R^(layers x H x d_k x d_v), gamma_t in R^(layers x H x d_k); `layers` may be left out
    conv in R^(layers x channels x K), where q, k and v pass a short convolution

A page is the checkpoint after its last token; its size does not depend on the context. An unheaded state in
R^(d_state x d_state) has one head. Source: Kimi Linear, arXiv 2510.26692, section 3.
"""

from typing import ClassVar, Final, Unpack

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.kinds import build
from nexuskv.contract.reuse import LastCheckpoint
from nexuskv.contract.tensors import LAYERS, TensorSpec
from nexuskv.contract.vocabulary import Granularity, Role, Scheme, member

_STATE_AXES: Final = ("heads", "key_dim", "value_dim")
_CONV_AXES: Final = ("conv_channels", "conv_width")
_RECURRENT: Final = frozenset({Role.RECURRENT_STATE, Role.DECAY})


class KdaRecurrent(Descriptor, tag="KDA_RECURRENT", frozen=True, kw_only=True):
    """Checkpoints at page boundaries; the last one alone restores its prefix."""

    axes: ClassVar = {
        Role.RECURRENT_STATE: _STATE_AXES,
        Role.DECAY: _STATE_AXES[:2],
        Role.CONV_STATE: _CONV_AXES,
    }
    forms: ClassVar = (_RECURRENT, _RECURRENT | {Role.CONV_STATE})
    interleaved_axes: ClassVar = (LAYERS,)
    schemes: ClassVar = frozenset({Scheme.NONE})
    reuse_rules: ClassVar = (LastCheckpoint,)


def kda(
    descriptor_id: str,
    *,
    key_dim: int,
    dtype: str,
    heads: int = 1,
    value_dim: int | None = None,
    layers: int | None = None,
    conv_width: int | None = None,
    page_tokens: int = 256,
    state_dtype: str = DType.FLOAT32,
    **common: Unpack[build.Common],
) -> KdaRecurrent:
    """Descriptor with tensors "state" and "decay" of `state_dtype` and, with a `conv_width`, "conv" of `dtype`.

    `value_dim` is `key_dim` when left out. The convolution has a channel for each number of q, k and v, so
    heads * (2 * key_dim + value_dim). `page_tokens` is the distance between two checkpoints. `common` is engine_family
    (required), granularity, arrangement and compatibility_flags. Raises DescriptorError.
    """
    stored, state = member(DType, "dtype", dtype), member(DType, "state_dtype", state_dtype)
    value_dim = key_dim if value_dim is None else value_dim
    convolved = conv_width is not None
    tensors: tuple[TensorSpec, ...] = (
        build.tensor("state", Role.RECURRENT_STATE, state, _STATE_AXES, layers),
        build.tensor("decay", Role.DECAY, state, _STATE_AXES[:2], layers),
    )
    if convolved:
        tensors += (build.tensor("conv", Role.CONV_STATE, stored, _CONV_AXES, layers),)
    common.setdefault("granularity", Granularity.CHECKPOINT)
    return build.assemble(
        KdaRecurrent,
        descriptor_id,
        tensors,
        build.sizes(
            layers=layers,
            heads=heads,
            key_dim=key_dim,
            value_dim=value_dim,
            conv_channels=heads * (2 * key_dim + value_dim) if convolved else None,
            conv_width=conv_width,
        ),
        page_tokens,
        reuse=LastCheckpoint(),
        **common,
    )
