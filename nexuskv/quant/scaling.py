"""What the symmetric quantisers share: which input they take, the scale of a row, and blocks that stay in cache.

Owns the rule scale = peak / largest, rounded so that no quotient exceeds `largest`. Knows no stored type: `int8`,
`int4` and `fp8` do.
"""

from collections.abc import Container, Iterator
from functools import cache
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nexuskv.errors import LocalError

Floats: TypeAlias = NDArray[Any]
"""float32, float16 or bfloat16."""
Float32: TypeAlias = NDArray[np.float32]

BLOCK_BYTES: Final = 256 * 1024
"""Of float32 worked on at once: the passes over a block find it in the second-level cache."""

_TAKEN: Final = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
_NORMAL: Final = np.finfo(np.float32).smallest_normal
_STEP: Final = float(np.finfo(np.float32).smallest_subnormal)


def check(x: Floats) -> None:
    """Refuse what is no array of float32, float16 or bfloat16 with at least one axis. Raises LocalError."""
    if x.dtype not in _TAKEN:
        raise LocalError(f"x has dtype {x.dtype}; quantisers take float32, float16 and bfloat16")
    if not x.ndim or not x.shape[-1]:
        raise LocalError(f"x has shape {x.shape}; its last axis holds the numbers that share a scale")


def check_target(name: str, target: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Refuse a target of another type or shape. Raises LocalError."""
    if target.dtype != dtype or target.shape != shape:
        raise LocalError(f"{name} is {target.dtype}{list(target.shape)}; it must be {dtype}{list(shape)}")
    check_writable(name, target)


def check_output(out: Floats, shape: tuple[int, ...]) -> None:
    """Refuse what decoded numbers cannot be written to. Raises LocalError."""
    if out.dtype not in _TAKEN or out.shape != shape:
        raise LocalError(
            f"out is {out.dtype}{list(out.shape)}; it must be float32, float16 or bfloat16 of {list(shape)}"
        )
    check_writable("out", out)


def check_payload(
    payload: NDArray[Any], scales: Float32, stored: str, taken: Container[np.dtype[Any]]
) -> None:
    """Refuse what has no rows of a type `taken`, called `stored`, or not a scale for each. Raises LocalError."""
    fits = payload.ndim > 0 and scales.dtype == np.float32 and scales.shape == payload.shape[:-1]
    if payload.dtype not in taken or not fits or not payload.shape[-1]:
        raise LocalError(
            f"payload is {payload.dtype}{list(payload.shape)} and scales {scales.dtype}{list(scales.shape)};"
            f" they must be {stored}, n being 1 or more, and float32 [...]"
        )


def check_writable(name: str, target: NDArray[Any]) -> None:
    """Refuse what cannot be written. Raises LocalError."""
    if not target.flags.writeable:
        raise LocalError(f"{name} is read-only, as the pages of a hit are; give an array of your own")


def rows(array: NDArray[Any], width: int) -> NDArray[Any]:
    """The array as (rows, width): a view where its strides allow one, else a copy."""
    return array.reshape(-1, width)


def block_rows(width: int) -> int:
    """Rows of `width` numbers that are worked on together."""
    return max(1, BLOCK_BYTES // (4 * width))


def blocks(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` rows of `width` numbers, `block_rows` each."""
    step = block_rows(width)
    return (slice(at, min(at + step, count)) for at in range(0, count, step))


def scales_of(peaks: Float32, largest: float) -> Float32:
    """The peaks over `largest` in float32, and 0 for a peak of 0; peaks must be finite.

    Rounding is bent at both ends: subnormal scales are rounded up, since one to nearest may be far too small, and none
    is so large that largest * scale overflows.
    """
    scales: Float32 = np.minimum(peaks / np.float32(largest), _highest(largest))
    tiny = scales < _NORMAL
    if tiny.any():
        scales[tiny] = (np.ceil(peaks[tiny].astype(np.float64) / largest / _STEP) * _STEP).astype(np.float32)
    return scales


@cache
def _highest(largest: float) -> np.float32:
    """The highest scale whose product with `largest` is finite."""
    top = np.finfo(np.float32).max
    scale = top / np.float32(largest)
    return scale if float(scale) * largest <= float(top) else np.nextafter(scale, np.float32(0))


def quotients(x: Floats, largest: float, first_row: int) -> tuple[Float32, Float32]:
    """Of (rows, width): x / scale in float32, new, and the scales; the rows begin at `first_row` of all.

    Raises LocalError for a NaN or an infinity.
    """
    work: Float32 = np.abs(x, dtype=np.float32)
    peaks = work.max(-1)
    if not np.isfinite(peaks).all():
        refuse_not_finite(x, first_row)
    scales = scales_of(peaks, largest)
    np.divide(x, divisors(scales)[:, None], out=work, dtype=np.float32)
    return work, scales


def into(numbers: Float32, out: Floats | None) -> Floats:
    """The numbers, or `out` with them, rounded to its dtype."""
    if out is None:
        return numbers
    check_output(out, numbers.shape)
    with np.errstate(over="ignore"):  # what float16 cannot hold is infinite
        np.copyto(out, numbers, casting="unsafe")
    return out


def divisors(scales: Float32) -> Float32:
    """The scales, but 1 for 0: a row of zeros is divided like any other."""
    return np.where(scales == 0, np.float32(1), scales)


def refuse_not_finite(x: Floats, first_row: int) -> None:
    """Raise LocalError that names the first NaN or infinity of (rows, width), whose rows begin at `first_row`."""
    row, column = (int(at[0]) for at in np.nonzero(~np.isfinite(x)))
    raise LocalError(
        f"x holds {x[row, column]} in row {first_row + row}, column {column};"
        " only finite numbers can be quantised, mask it first"
    )
