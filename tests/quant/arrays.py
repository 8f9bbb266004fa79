"""Random arrays for the tests of quantisers: every finite float32 there is, ordinary numbers, and extremes together."""

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 8).map(lambda half: 2 * half))
DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
EXTREMES = (0.0, -0.0, 1e-45, -3e-45, 1.1754942e-38, 1.1754944e-38, 1.0, -3.4028235e38, 3.4028235e38, 6e-8)


def finite() -> st.SearchStrategy[NDArray[np.float32]]:
    """float32 arrays of three axes."""
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from(EXTREMES)
    tiny = st.floats(-(2.0**-136), 2.0**-136, width=32)
    plain = st.floats(-8, 8, width=32)
    return st.one_of(*(hnp.arrays(np.float32, SHAPES, elements=each) for each in (numbers, tiny, plain)))


def exact(array: NDArray[Any]) -> NDArray[np.longdouble]:
    """The same numbers with so many digits that comparing them rounds nothing that matters."""
    return array.astype(np.float32).astype(np.longdouble)


def bad() -> st.SearchStrategy[float]:
    return st.sampled_from([np.nan, np.inf, -np.inf])


def normal(shape: tuple[int, ...], seed: int = 3) -> NDArray[np.float32]:
    """Numbers as keys and values have them."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
