"""The element types of a tensor and how each is stored.

Owns the list of dtypes, their width and the numpy type of a view. Knows nothing of tensors or quantisation. All are
little-endian, as every supported host is. `int4` is packed two a byte, the element of the lower index in the low
nibble, and numpy has no such type: a view shows the packed bytes as uint8, its last axis halved.
"""

from enum import StrEnum
from typing import Any, Final

import ml_dtypes
import numpy as np


class DType(StrEnum):
    """Element type; the value is the wire form and, but for int4, the numpy (ml_dtypes) name."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    INT32 = "int32"
    UINT32 = "uint32"

    @property
    def storage(self) -> np.dtype[Any]:
        """Numpy type of a view on the stored bytes."""
        return _STORAGE[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one item of `storage`."""
        return _STORAGE[self].itemsize

    @property
    def packed(self) -> int:
        """Elements in one item of `storage`: 2 for int4, else 1."""
        return 2 if self is DType.INT4 else 1


_STORAGE: Final[dict[DType, np.dtype[Any]]] = {
    DType.FLOAT32: np.dtype("<f4"),
    DType.FLOAT16: np.dtype("<f2"),
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DType.FLOAT8_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DType.INT8: np.dtype("i1"),
    DType.UINT8: np.dtype("u1"),
    DType.INT4: np.dtype("u1"),
    DType.INT32: np.dtype("<i4"),
    DType.UINT32: np.dtype("<u4"),
}
