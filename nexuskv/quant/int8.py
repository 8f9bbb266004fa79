"""int8_per_token_head_f32_scale_v1: symmetric int8, one float32 scale for each row of the last axis.

Owns the arithmetic of that scheme. Knows nothing of descriptors: a row is the head dimension of one token and head.

    scale = max|x| / 127        q = round_half_even(x / scale), -127 to 127        x' = q * scale

The scale is float32. A row of zeros has scale 0 and gives zeros back. Bound, for finite x down to subnormals:

    |x - q * scale| <= scale / 2

q is that of the exact quotient: where float32 cannot tell on which side of a half it lies, float64 can, as the
difference of x and (q + 1/2) * scale is 0 or far larger than what float64 rounds away. q * scale is exact in float64,
having 7 + 24 bits. What `dequantize` returns is its rounding to float32, half a unit in the last place more, or to the
dtype of `out`. Source of the scheme: section 3 of the contract.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nexuskv.quant import scaling
from nexuskv.quant.scaling import Float32, Floats

LARGEST: Final = 127
_NEARLY_HALF: Final = np.float32(0.5 - 2**-16)
"""Fractions below are told right by float32, whose quotients are off by a relative 2^-24 of at most 127."""

Payload = NDArray[np.int8]
_STORED: Final = (np.dtype(np.int8),)


def quantize(
    x: Floats, *, payload: Payload | None = None, scales: Float32 | None = None
) -> tuple[Payload, Float32]:
    """Payload int8 of x's shape, and scales float32 of x's shape without its last axis.

    `x` is float32, float16 or bfloat16. `payload` and `scales`, when given, are written and returned: a page's tensors
    are filled in place. Raises LocalError, also for the first NaN or infinity; what was given may be half written then.
    """
    scaling.check(x)
    payload = np.empty(x.shape, np.int8) if payload is None else payload
    scales = np.empty(x.shape[:-1], np.float32) if scales is None else scales
    scaling.check_target("payload", payload, np.dtype(np.int8), x.shape)
    scaling.check_target("scales", scales, np.dtype(np.float32), x.shape[:-1])
    if not (payload.flags.c_contiguous and scales.flags.c_contiguous):
        payload[...], scales[...] = quantize(x)
        return payload, scales
    width = x.shape[-1]
    _quantize_rows(scaling.rows(x, width), scaling.rows(payload, width), scales.reshape(-1))
    return payload, scales


def dequantize(payload: Payload, scales: Float32, out: Floats | None = None) -> Floats:
    """The payload times its scales, float32 of the payload's shape, or written into `out` and rounded to its dtype.

    `out` is float32, float16 or bfloat16; beyond the range of float16 numbers become infinite. Raises LocalError.
    """
    scaling.check_payload(payload, scales, "int8 [..., n]", _STORED)
    out = np.empty(payload.shape, np.float32) if out is None else out
    scaling.check_output(out, payload.shape)
    if not out.flags.c_contiguous:
        out[...] = dequantize(payload, scales)
        return out
    width = payload.shape[-1]
    _dequantize_rows(scaling.rows(payload, width), scales.reshape(-1), scaling.rows(out, width))
    return out


def _quantize_rows(x: Floats, payload: Payload, scales: Float32) -> None:
    count, width = x.shape
    scratch: NDArray[Any] = np.empty((2, scaling.block_rows(width), width), np.float32)
    for block in scaling.blocks(count, width):
        part = x[block]
        work, whole = scratch[:, : len(part)]
        np.abs(part, out=work, dtype=np.float32)
        peaks = work.max(-1)
        if not np.isfinite(peaks).all():
            scaling.refuse_not_finite(part, block.start)
        found = scaling.scales_of(peaks, LARGEST)
        scales[block] = found
        divisors = scaling.divisors(found)[:, None]
        np.divide(part, divisors, out=work, dtype=np.float32)
        np.rint(work, out=whole)
        np.subtract(work, whole, out=work)
        doubtful = np.flatnonzero((np.abs(work, out=work) > _NEARLY_HALF).any(-1))  # a row in a hundred or so
        whole[doubtful] = np.rint(part[doubtful].astype(np.float64) / divisors[doubtful])
        np.copyto(payload[block], whole, casting="unsafe")


def _dequantize_rows(payload: Payload, scales: Float32, out: Floats) -> None:
    scratch: NDArray[Any] = np.empty((scaling.block_rows(payload.shape[1]), payload.shape[1]), np.float32)
    for block in scaling.blocks(*payload.shape):
        to = out[block]
        work = to if to.dtype == np.float32 else scratch[: len(to)]
        np.copyto(work, payload[block])
        np.multiply(work, scales[block, None], out=work)
        if work is not to:
            with np.errstate(over="ignore"):  # what float16 cannot hold is infinite
                np.copyto(to, work, casting="unsafe")
