"""The segments that a daemon handed to one session, mapped.

Owns the mappings by arena and number, for reading and for writing. Knows nothing of sockets: descriptors come with the
message that names their segments.
"""

from collections import defaultdict
from collections.abc import Sequence

from nexuskv.contract import PageLayout
from nexuskv.errors import LocalError
from nexuskv.ipc.mapping import MappedSegment
from nexuskv.protocol.messages import Segment

Segments = dict[int, dict[int, MappedSegment]]
"""By arena and number."""


class Mapped:
    """What is mapped; `layouts` say for each registered arena what lies in a page."""

    def __init__(self) -> None:
        self.layouts: dict[int, PageLayout] = {}
        self.readable: Segments = defaultdict(dict)
        self.writable: Segments = defaultdict(dict)

    def take(self, segments: Sequence[Segment], descriptors: list[int]) -> None:
        """Maps `segments`, and takes the descriptor of each off the list. Raises LocalError, RemoteError, OSError."""
        all_there(descriptors, len(segments))
        for each in segments:
            mapped = MappedSegment(
                descriptors.pop(0),
                self.layouts[each.arena],
                each.slots,
                each.slot_bytes,
                writable=each.writable,
            )
            (self.writable if each.writable else self.readable)[each.arena][each.segment] = mapped

    def drop(self, segments: Sequence[int]) -> None:
        """These are gone. Arrays on them keep their mapping."""
        for mapped in (*self.readable.values(), *self.writable.values()):
            for number in segments:
                mapped.pop(number, None)

    def clear(self) -> None:
        """Nothing is mapped any more, and nothing registered for a device."""
        for mapped in (*self.readable.values(), *self.writable.values()):
            for segment in mapped.values():
                segment.unregister()
            mapped.clear()


def all_there(descriptors: Sequence[int], expected: int) -> None:
    """Raises LocalError when the kernel could not give this process all descriptors of a message."""
    if len(descriptors) != expected:
        raise LocalError("this process has no file descriptor left: close some, or raise its RLIMIT_NOFILE")
