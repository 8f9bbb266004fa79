"""Which stretches of local memory outstanding pulls may write, so that no two of them overlap.

Owns the order of addresses. Knows nothing of pulls: a claim is an address and a length.
"""

import ctypes
from bisect import bisect_left

from nexuskv.errors import LocalError

_byte = ctypes.c_char
_addressof = ctypes.addressof


def address_of(view: memoryview) -> int:
    """Virtual address of a view's first byte. Raises LocalError unless it is writable, contiguous and not empty."""
    try:
        return _addressof(_byte.from_buffer(view))
    except (TypeError, ValueError) as error:
        raise LocalError(
            f"pages are pulled into writable, contiguous memory of at least a byte: {error}"
        ) from None


class Extents:
    """Claimed stretches, none of which overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}

    def claim(self, start: int, nbytes: int) -> bool:
        """Claims a stretch; False if a byte of it is claimed already."""
        starts, end = self._starts, start + nbytes
        at = bisect_left(starts, start)
        if at < len(starts) and starts[at] < end:
            return False
        if at and self._ends[starts[at - 1]] > start:
            return False
        starts.insert(at, start)
        self._ends[start] = end
        return True

    def release(self, start: int) -> None:
        """Gives back the stretch that begins there."""
        del self._ends[start]
        del self._starts[bisect_left(self._starts, start)]
