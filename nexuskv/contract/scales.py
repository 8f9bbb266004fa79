"""Quantisation and its scale tensors: which tensors a scheme quantises, and what each needs beside it.

Owns the rules of the schemes as far as they shape a page. Knows no arithmetic: encoding numbers is not the contract's.
Except for int8_per_token_head_f32_scale_v1, whose scales are fixed by its name, a scheme leaves the axes of its
scales to the engine: per layer and head, per tile of a latent, per token.
"""

from typing import TYPE_CHECKING, Final

from nexuskv.contract.dtypes import DType
from nexuskv.contract.tensors import TensorSpec
from nexuskv.contract.vocabulary import Role, Scheme
from nexuskv.errors import DescriptorError

if TYPE_CHECKING:
    from nexuskv.contract.descriptor import Descriptor

PAYLOAD_DTYPE: Final = {
    Scheme.FP8_E4M3: DType.FLOAT8_E4M3FN,
    Scheme.FP8_E5M2: DType.FLOAT8_E5M2,
    Scheme.INT4: DType.INT4,
    Scheme.INT8_PER_TOKEN_HEAD: DType.INT8,
}
"""Element type of the tensors that a scheme quantises; each of them has one scale tensor."""

FP8: Final = frozenset({Scheme.FP8_E4M3, Scheme.FP8_E5M2})

_SCALE_DTYPES: Final = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


def check(descriptor: "Descriptor") -> None:
    """Refuse a scheme without its scale tensors, scale tensors without a scheme, and scales that do not fit."""
    _check_scheme(descriptor)
    found = [spec.name for spec in descriptor.tensor_specs if spec.role is Role.SCALE]
    declared = list(descriptor.quantization.scale_tensors)
    if descriptor.quantization.scheme is Scheme.NONE and (found or declared):
        raise DescriptorError(
            "quantization.scheme", f"none, but there are scale tensors {found or declared}; name their scheme"
        )
    if declared != found:
        raise DescriptorError(
            "quantization.scale_tensors", f"{declared} declared where the tensors of role SCALE are {found}"
        )
    if descriptor.quantization.scheme is not Scheme.NONE:
        _check_pairs(descriptor)


def _check_scheme(descriptor: "Descriptor") -> None:
    if descriptor.quantization.scheme not in descriptor.schemes:
        known = ", ".join(scheme for scheme in Scheme if scheme in descriptor.schemes)
        raise DescriptorError(
            "quantization.scheme", f"{descriptor.semantic_type} is stored with {known} only"
        )


def _check_pairs(descriptor: "Descriptor") -> None:
    scheme = descriptor.quantization.scheme
    payloads = [spec for spec in descriptor.tensor_specs if spec.dtype is PAYLOAD_DTYPE[scheme]]
    scales = [
        (f"tensor_specs[{index}]", spec)
        for index, spec in enumerate(descriptor.tensor_specs)
        if spec.role is Role.SCALE
    ]
    if not payloads:
        raise DescriptorError(
            "quantization.scheme", f"{scheme} needs a tensor of dtype {PAYLOAD_DTYPE[scheme]}"
        )
    if len(payloads) != len(scales):
        raise DescriptorError(
            "quantization.scale_tensors",
            f"{len(scales)} scale tensors for {len(payloads)} of dtype {PAYLOAD_DTYPE[scheme]}; each has one",
        )
    for payload, (field, scale) in zip(payloads, scales, strict=True):
        _check_scale(scheme, payload, field, scale)


def _check_scale(scheme: Scheme, payload: TensorSpec, field: str, scale: TensorSpec) -> None:
    allowed = (DType.FLOAT32,) if scheme is Scheme.INT8_PER_TOKEN_HEAD else _SCALE_DTYPES
    if scale.dtype not in allowed:
        raise DescriptorError(f"{field}.dtype", f"{scale.dtype} where {scheme} has {', '.join(allowed)}")
    if scheme is Scheme.INT8_PER_TOKEN_HEAD and scale.shape != payload.shape[:-1]:
        expected = list(payload.shape[:-1])
        raise DescriptorError(
            f"{field}.shape", f"{list(scale.shape)} where {payload.name!r} has a scale for each of {expected}"
        )
