"""What the engine wants done, as data.

Owns the vocabulary between the pure core and its shells. A shell performs effects in the order given.
"""

from dataclasses import dataclass

from nexuskv.protocol.messages import Notice, Reply
from nexuskv_daemon.core.memory import SegmentRecord


@dataclass(slots=True)
class Send:
    """Send `message` to a session, with one file descriptor for each segment that a `Segments` notice names."""

    session: int
    message: Reply | Notice


@dataclass(slots=True)
class Close:
    """End a session once everything sent before has left."""

    session: int


@dataclass(slots=True)
class MakeSegment:
    """Create a segment's object and reserve its space; answer with `Engine.segment_made` or `segment_failed`."""

    record: SegmentRecord


@dataclass(slots=True)
class DropSegment:
    """Give a segment's memory back to the machine, now, though clients may still map it."""

    record: SegmentRecord


@dataclass(slots=True)
class Stop:
    """Stop the daemon, leaving the objects to its successor."""


Effect = Stop | Send | Close | MakeSegment | DropSegment
