"""fp8_e4m3 and fp8_e5m2: eight-bit floating point, one float32 scale for each row of the last axis.

Owns the arithmetic of both. Knows nothing of descriptors: whatever numbers share a scale come as one row.

    scale = max|x| / largest        y = round_to_nearest_even(x / scale)        x' = y * scale

                largest    bound, for finite x
    fp8_e4m3    448        |x - x'| <= max(|x| * 2^-4, scale * 2^-10) * (1 + 2^-18) + 2^-149
    fp8_e5m2    57344      |x - x'| <= max(|x| * 2^-3, scale * 2^-17) * (1 + 2^-18) + 2^-149

Half a unit in the last place: 3 bits of mantissa, or 2, leave a relative 2^-4, or 2^-3; below the smallest normal
number, 2^-6 or 2^-14, the step is fixed at 2^-9, or 2^-16. 2^-18 is more than float32 adds to that, but for products
that are subnormal, which have a step of 2^-149. A row of zeros has scale 0 and gives zeros back. The element types are
those of ml_dtypes, float8_e4m3fn (no infinity) and float8_e5m2.
"""

from enum import StrEnum
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nexuskv.errors import LocalError
from nexuskv.quant import scaling
from nexuskv.quant.scaling import Float32, Floats

Float8 = NDArray[Any]
"""float8_e4m3fn or float8_e5m2 of ml_dtypes."""


class Format(StrEnum):
    """Spelled as the contract's schemes are."""

    E4M3 = "fp8_e4m3"
    E5M2 = "fp8_e5m2"

    @property
    def dtype(self) -> np.dtype[Any]:
        """What numpy calls the stored type."""
        return _DTYPES[self]

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return 448.0 if self is Format.E4M3 else 57344.0


_DTYPES: Final[dict[Format, np.dtype[Any]]] = {
    Format.E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    Format.E5M2: np.dtype(ml_dtypes.float8_e5m2),
}

# What each of the 256 bytes stands for, float32[256].
_DECODED: Final = {
    form.dtype: np.arange(256, dtype=np.uint8).view(form.dtype).astype(np.float32) for form in Format
}


def quantize(x: Floats, form: Format | str) -> tuple[Float8, Float32]:
    """Payload of x's shape and scales float32 of x's shape without its last axis.

    `x` is float32, float16 or bfloat16. Raises LocalError, also for the first NaN or infinity.
    """
    scaling.check(x)
    form = _format(form)
    width = x.shape[-1]
    numbers = scaling.rows(x, width)
    payload = np.empty(numbers.shape, form.dtype)
    scales = np.empty(len(numbers), np.float32)
    for block in scaling.blocks(*numbers.shape):
        quotients, scales[block] = scaling.quotients(numbers[block], form.largest, block.start)
        payload[block] = quotients.astype(form.dtype)
    return payload.reshape(x.shape), scales.reshape(x.shape[:-1])


def _format(form: str) -> Format:
    try:
        return Format(form)
    except ValueError:
        raise LocalError(f"{form!r} is no format of fp8; use one of {', '.join(Format)}") from None


def dequantize(payload: Float8, scales: Float32, out: Floats | None = None) -> Floats:
    """The payload times its scales, float32 of its shape, or written into `out` and rounded to its dtype.

    `out` is float32, float16 or bfloat16; beyond the range of float16 numbers become infinite. Raises LocalError.
    """
    scaling.check_payload(payload, scales, "float8 [..., n]", _DECODED)
    numbers = np.take(_DECODED[payload.dtype], np.ascontiguousarray(payload).view(np.uint8))
    numbers *= scales[..., None]
    return scaling.into(numbers, out)
