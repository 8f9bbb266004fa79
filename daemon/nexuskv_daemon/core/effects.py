"""What the engine wants done, as data.

Owns the vocabulary between the pure core and its shells. A shell performs effects in the order given. Every request
makes some, so they are structs: those cost a fifth of a dataclass.
"""

import msgspec

from nexuskv.contract import Descriptor
from nexuskv.protocol.fetches import FetchBlocks, FetchGroup
from nexuskv.protocol.hosts import Fetch, GetPeers, Push
from nexuskv.protocol.messages import Message
from nexuskv.protocol.offers import GetOffers
from nexuskv_daemon.core.memory import SegmentRecord


class Send(msgspec.Struct, gc=False):
    """Send `message` to a session, with one file descriptor for each segment that a `Segments` notice names."""

    session: int
    message: Message


class Close(msgspec.Struct, gc=False):
    """End a session once everything sent before has left."""

    session: int


class MakeSegment(msgspec.Struct, gc=False):
    """Create a segment's object and reserve its space; answer with `Engine.segment_made` or `segment_failed`."""

    record: SegmentRecord


class DropSegment(msgspec.Struct, gc=False):
    """Give a segment's memory back to the machine, now, though clients may still map it."""

    record: SegmentRecord


class Stop(msgspec.Struct, gc=False):
    """Stop the daemon, leaving the objects to its successor."""


class Abroad(msgspec.Struct, gc=False):
    """Have a request that other hosts are needed for performed; its reply goes to the session when it is there.

    `descriptors` are those that it names, with the flags that whoever asks declared.
    """

    session: int
    tenant: str
    descriptors: list[Descriptor]
    request: Fetch | FetchBlocks | FetchGroup | GetOffers | Push | GetPeers


Effect = Stop | Abroad | Send | Close | MakeSegment | DropSegment
