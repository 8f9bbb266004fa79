"""The segments that a daemon handed to one session, mapped.

Owns the mappings by arena and number, for reading and for writing. Knows nothing of sockets: descriptors come with the
message that names their segments.
"""

from collections import defaultdict
from collections.abc import Sequence

from nexuskv.contract import PageLayout
from nexuskv.errors import LocalError, VersionMismatch
from nexuskv.ipc.mapping import MappedSegment
from nexuskv.native import LayoutError, Reader
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
        """Maps `segments`, and takes the descriptor of each off the list. Raises LocalError, RemoteError."""
        _all_there(descriptors, len(segments))
        try:
            for each in segments:
                self._take_one(each, descriptors.pop(0))
        except OSError as error:
            raise LocalError(f"this process cannot map a segment of the daemon: {error}") from error

    def _take_one(self, segment: Segment, descriptor: int) -> None:
        layout, writable = self.layouts[segment.arena], segment.writable
        mapped = MappedSegment(descriptor, layout, segment.slots, segment.slot_bytes, writable=writable)
        (self.writable if writable else self.readable)[segment.arena][segment.segment] = mapped

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


def attached(descriptors: list[int]) -> Reader:
    """The shared index that came with descriptors of its three objects. Raises LocalError, VersionMismatch."""
    _all_there(descriptors, 3)
    try:
        return Reader(*descriptors)
    except LayoutError as error:
        raise VersionMismatch(
            f"the daemon's shared index cannot be read ({error}): install the same release on both sides"
        ) from error
    except OSError as error:
        raise LocalError(f"this process cannot map the daemon's shared index: {error}") from error


def _all_there(descriptors: Sequence[int], expected: int) -> None:
    """Raises LocalError when the kernel could not give this process all descriptors of a message."""
    if len(descriptors) != expected:
        raise LocalError("this process has no file descriptor left: close some, or raise its RLIMIT_NOFILE")
