"""Quantised tensors of a page, with their scales where the descriptor has them.

Owns the way from a descriptor to rows that share a scale, and back. Knows nothing of where a page lies: whatever gives
its tensors by name is one, a reserved page, a page of a hit, or a dict of arrays.

Which numbers share a scale is read off the shapes. An axis that payload and scales both have is cut; one that only the
payload has is shared; one that only the scales have cuts the payload's last axis into tiles (latents under fp8).
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from nexuskv.contract import Descriptor, DType, Scheme, TensorSpec
from nexuskv.contract.scales import PAYLOAD_DTYPE
from nexuskv.errors import LocalError
from nexuskv.quant import fp8, int4, int8, scaling
from nexuskv.quant.scaling import Float32, Floats

Quantize = Callable[[Floats], tuple[NDArray[Any], Float32]]
Dequantize = Callable[[NDArray[Any], Float32], Floats]


class Tensors(Protocol):
    """Arrays by name."""

    def __getitem__(self, name: str, /) -> NDArray[Any]: ...


def encode(descriptor: Descriptor, name: str, x: Floats, page: Tensors) -> None:
    """Quantises `x` into the tensor `name` of `page` and its scale tensor.

    `x` is float32, float16 or bfloat16 of the tensor's shape, in elements. Raises LocalError, also for a NaN or an
    infinity; the page is as it was then.
    """
    payload, scale = _pair(descriptor, name)
    shape = tuple(descriptor.sizes[axis] for axis in payload.shape)
    if x.shape != shape:
        raise LocalError(f"x has shape {list(x.shape)} where {name!r} has {list(shape)}")
    quantize, _ = _METHODS[descriptor.quantization.scheme]
    rows = _Rows(descriptor, payload, scale)
    stored, scales = quantize(rows.of(x))
    for part in (name, scale.name):
        scaling.check_writable(part, page[part])
    page[name][...] = rows.back(stored)
    page[scale.name][...] = scales.reshape(rows.scales)


def decode(descriptor: Descriptor, name: str, page: Tensors, out: Floats | None = None) -> Floats:
    """The numbers of the quantised tensor `name` of `page`, float32, or written into `out` and rounded to its dtype.

    `out` is float32, float16 or bfloat16. Raises LocalError.
    """
    payload, scale = _pair(descriptor, name)
    _, dequantize = _METHODS[descriptor.quantization.scheme]
    rows = _Rows(descriptor, payload, scale)
    numbers = dequantize(rows.of(page[name]), np.ascontiguousarray(page[scale.name]).reshape(-1))
    return scaling.into(rows.back(numbers), out)


class _Rows:
    """The numbers of a tensor as (scales, numbers that share one), and how they go back."""

    def __init__(self, descriptor: Descriptor, payload: TensorSpec, scale: TensorSpec) -> None:
        tiles = [axis for axis in scale.shape if axis not in payload.shape]
        axes = (*payload.shape[:-1], *tiles, payload.shape[-1])
        self._tiles = [descriptor.sizes[axis] for axis in tiles]
        self._order = [axes.index(axis) for axis in scale.shape]
        self._order += [place for place in range(len(axes)) if place not in self._order]
        self.scales = tuple(descriptor.sizes[axis] for axis in scale.shape)

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """(..., n) to (scales, numbers of one)."""
        cut = array.reshape(*array.shape[:-1], *self._tiles, -1)
        self._shape = array.shape
        self._moved = cut.transpose(self._order)
        return np.ascontiguousarray(self._moved).reshape(int(np.prod(self.scales)), -1)

    def back(self, rows: NDArray[Any]) -> NDArray[Any]:
        """What `of` was given, from rows of as many numbers; packed ones stay packed."""
        moved = self._moved.shape
        array = rows.reshape(*moved[:-1], -1).transpose(np.argsort(self._order))
        return array.reshape(*self._shape[:-1], -1)


def _pair(descriptor: Descriptor, name: str) -> tuple[TensorSpec, TensorSpec]:
    """A quantised tensor and its scales: the i-th scale tensor belongs to the i-th tensor of the scheme's type."""
    stored = PAYLOAD_DTYPE.get(descriptor.quantization.scheme)
    payloads = [spec for spec in descriptor.tensor_specs if spec.dtype is stored]
    specs = {spec.name: spec for spec in descriptor.tensor_specs}
    for payload, scale in zip(payloads, descriptor.quantization.scale_tensors, strict=True):
        if payload.name == name:
            return payload, _fitting(payload, specs[scale])
    known = ", ".join(spec.name for spec in payloads) or "none"
    raise LocalError(f"{descriptor.descriptor_id} has no quantised tensor {name!r}; there are: {known}")


def _fitting(payload: TensorSpec, scale: TensorSpec) -> TensorSpec:
    if scale.dtype is not DType.FLOAT32:
        raise LocalError(f"{scale.name!r} is {scale.dtype}; only float32 scales are encoded here")
    if payload.dtype is DType.INT4 and payload.shape[-1] in scale.shape:
        raise LocalError(
            f"{payload.name!r} is packed along {payload.shape[-1]!r}, so that must share its scales"
        )
    return scale


_METHODS: Final[dict[Scheme, tuple[Quantize, Dequantize]]] = {
    Scheme.FP8_E4M3: (lambda x: fp8.quantize(x, fp8.Format.E4M3), fp8.dequantize),
    Scheme.FP8_E5M2: (lambda x: fp8.quantize(x, fp8.Format.E5M2), fp8.dequantize),
    Scheme.INT4: (int4.quantize, int4.dequantize),
    Scheme.INT8_PER_TOKEN_HEAD: (int8.quantize, int8.dequantize),
}
