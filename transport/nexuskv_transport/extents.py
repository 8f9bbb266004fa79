"""Which stretches of local memory outstanding pulls may write, so that no two of them overlap.

Owns the order of addresses. Knows nothing of pulls: a claim is an address and a length.
"""

import ctypes
from bisect import bisect_left, insort

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

    def free(self, start: int, nbytes: int) -> bool:
        """Whether no byte of a stretch is claimed."""
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] < start + nbytes:
            return False
        return not at or self._ends[self._starts[at - 1]] <= start

    def claim(self, start: int, nbytes: int) -> None:
        """Claims a stretch that is free."""
        insort(self._starts, start)
        self._ends[start] = start + nbytes

    def release(self, start: int) -> None:
        """Gives back the stretch that begins there."""
        del self._ends[start]
        del self._starts[bisect_left(self._starts, start)]
