"""Packed int4: symmetric, two numbers a byte, one float32 scale for each row of the last axis.

Owns the arithmetic and the packing. Knows nothing of descriptors. Of a byte, the low nibble is the element of the lower
index, both in two's complement:

    | x[1] x[0] | x[3] x[2] | ...        scale = max|x| / 7        q = round_half_even(x / scale), -7 to 7

-8 is never written, so that the range is symmetric; it is read as -8 all the same. Bound, for finite x:

    |x - x'| <= scale / 2 * (1 + 2^-19)

The half is the rounding of q; 2^-19 is what float32 adds to it, a relative 2^-24 each in x / scale and q * scale, on
numbers of up to 7 scales. A row of zeros has scale 0 and gives zeros back.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from nexuskv.errors import LocalError
from nexuskv.quant import scaling
from nexuskv.quant.scaling import Float32, Floats

LARGEST: Final = 7

Packed = NDArray[np.uint8]
_STORED: Final = (np.dtype(np.uint8),)

# Both numbers of each of the 256 bytes, float32[256, 2].
_BYTES: Final = np.arange(256)
_UNPACKED: Final = ((np.stack([_BYTES & 15, _BYTES >> 4], axis=1) ^ 8) - 8).astype(np.float32)


def quantize(x: Floats) -> tuple[Packed, Float32]:
    """Payload uint8 (..., n / 2) and scales float32 (...) of x (..., n), float32, float16 or bfloat16.

    Raises LocalError, also for an odd n and for the first NaN or infinity.
    """
    scaling.check(x)
    width = x.shape[-1]
    if width % 2:
        raise LocalError(f"x has rows of {width} numbers; int4 is packed two a byte, so they must be even")
    numbers = scaling.rows(x, width)
    packed = np.empty((len(numbers), width // 2), np.uint8)
    scales = np.empty(len(numbers), np.float32)
    for block in scaling.blocks(*numbers.shape):
        quotients, scales[block] = scaling.quotients(numbers[block], LARGEST, block.start)
        nibbles = np.rint(quotients, out=quotients).astype(np.int8).view(np.uint8)
        packed[block] = (nibbles[:, ::2] & 15) | (nibbles[:, 1::2] << 4)
    return packed.reshape(*x.shape[:-1], width // 2), scales.reshape(x.shape[:-1])


def dequantize(packed: Packed, scales: Float32, out: Floats | None = None) -> Floats:
    """Payload (..., n / 2) and scales (...) back to float32 (..., n), or into `out` of that shape in its own dtype.

    `out` is float32, float16 or bfloat16; beyond the range of float16 numbers become infinite. Raises LocalError.
    """
    scaling.check_payload(packed, scales, "uint8 [..., n / 2]", _STORED)
    shape = (*packed.shape[:-1], packed.shape[-1] * 2)
    numbers: Float32 = _UNPACKED[packed].reshape(shape)
    numbers *= scales[..., None]
    return scaling.into(numbers, out)
