"""Free slots of one arena.

Owns which slots are free, nothing else: not what lies in the others, not the memory behind them. A slot is named by its
handle, `segment << 32 | slot`. Taking and giving back are O(1) a slot; the slot freed last is taken first, because its
memory is the likeliest to be in a cache.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import not_

from nexuskv.protocol.messages import SLOT_BITS, SLOT_MASK


def segment_of(handle: int) -> int:
    """The segment that a handle points into."""
    return handle >> SLOT_BITS


def slot_of(handle: int) -> int:
    """The slot inside its segment that a handle points to."""
    return handle & SLOT_MASK


class SlotPool:
    """A stack of free handles, 8 bytes each."""

    def __init__(self) -> None:
        self._free = array("Q")
        self._slots: dict[int, int] = {}
        self.capacity = 0

    def __len__(self) -> int:
        return len(self._free)

    @property
    def segments(self) -> Mapping[int, int]:
        """Slots of each segment, free or taken."""
        return self._slots

    def free(self) -> list[int]:
        """Handles of all free slots, for checks."""
        return self._free.tolist()

    def add_segment(self, segment: int, slots: int) -> None:
        """Takes in a new segment; its lowest slots are handed out first."""
        first = segment << SLOT_BITS
        self._slots[segment] = slots
        self.capacity += slots
        self._free.extend(range(first + slots - 1, first - 1, -1))

    def restore_segment(self, segment: int, taken: Sequence[object]) -> None:
        """Takes in a segment; `taken` has what is in each slot, None where it is free."""
        first, slots = segment << SLOT_BITS, len(taken)
        self._slots[segment] = slots
        self.capacity += slots
        self._free.extend(compress(range(first + slots - 1, first - 1, -1), map(not_, reversed(taken))))

    def drop_segment(self, segment: int) -> None:
        """Forgets a segment whose slots are all free."""
        self.capacity -= self._slots.pop(segment)
        self._free = array("Q", (handle for handle in self._free if segment_of(handle) != segment))

    def take(self, count: int) -> list[int]:
        """`count` free handles; the caller has checked that there are so many."""
        if not count:
            return []
        taken = self._free[-count:].tolist()
        del self._free[-count:]
        taken.reverse()
        return taken

    def give(self, handles: Iterable[int]) -> None:
        """Makes slots free again."""
        self._free.extend(handles)
