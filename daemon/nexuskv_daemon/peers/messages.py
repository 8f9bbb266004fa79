"""Every message between two daemons, as msgspec structs, and their frames.

Owns the wire form; knows nothing of sockets. What clients ask a daemon in the same words is `nexuskv.protocol`'s. Both
ends of a link ask and answer alike, once they have said hello. A frame:

    +-------------------+-------------------------------------------+
    | length, u32 (LE)  | msgpack array [tag, id, field, ...]       |    length: of what follows, MAX_FRAME at most
    +-------------------+-------------------------------------------+

`id` pairs a reply with its request, and is each asking end's own; a request with id 0 wants no reply. Nothing is
optional, and a message of another kind ends the link: daemons of one protocol version speak alike, those of two not
at all.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from nexuskv.protocol.fetches import BlockName
from nexuskv.protocol.messages import MAX_KEYS, U32, U63, Key, Keys, Measure, Measured, Message
from nexuskv_transport.base import Region

PROTOCOL_VERSION = 1
MAX_FRAME = 1 << 20
HEADER_BYTES = 4
Text = Annotated[str, Meta(max_length=300)]
U64 = Annotated[bytes, Meta(min_length=8, max_length=8)]
"""Checksums use all 64 bits, more than msgspec bounds; little-endian."""


class Hello(Message, frozen=True, tag="hello"):
    """First message of both ends. `advertise` is where the sender is reached, "" where nobody may connect.

    `data` are the addresses that its pages are pulled from, the best one first.
    """

    version: int
    instance: Text
    boot_epoch: U63
    advertise: Text
    data: Annotated[list[Text], Meta(max_length=8)]


class Open(Message, frozen=True, tag="open"):
    """Asks for the arena of a tenant's pages with this descriptor digest."""

    tenant: Text
    digest: Key


class Pin(Message, frozen=True, tag="pin"):
    """Pins the longest restorable boundary of `keys`, until it is released or the link ends. `id` is its name."""

    arena: U32
    keys: Keys


class PinBlocks(Message, frozen=True, tag="pin_blocks"):
    """Pins the pages that the named blocks are cut from, as `Pin` does; `layer` is 0 where pages have one only."""

    arena: U32
    layer: U32
    wanted: Annotated[list[BlockName], Meta(max_length=MAX_KEYS)]


class Release(Message, frozen=True, tag="release"):
    """Ends what the pin with this id holds, or will hold: whoever gave up waiting can say so."""

    pin: U63


class Offer(Message, frozen=True, tag="offer"):
    """Suggests that the receiver pull these pages, which follow `parent`, from the sender within `milliseconds`."""

    tenant: Text
    descriptor: Annotated[bytes, Meta(max_length=1 << 16)]
    keys: Keys
    parent: Annotated[bytes, Meta(max_length=32)]
    milliseconds: U32


class Ping(Message, frozen=True, tag="ping"):
    """Asks for a sign of life."""


Request = Open | Measure | Pin | PinBlocks | Release | Offer | Ping


class Opened(Message, frozen=True, tag="opened"):
    """Answers `Open`: arena 0 when there is none, else its number and a descriptor in canonical msgpack."""

    arena: U32
    descriptor: Annotated[bytes, Meta(max_length=1 << 16)]


class RemotePage(msgspec.Struct, array_like=True, frozen=True):
    """Where a pinned page lies, and XXH3-64 of its bytes."""

    region: U32
    offset: U63
    checksum: U64


class Pinned(Message, frozen=True, tag="pinned"):
    """Answers `Pin`: pages of `keys[start:]`."""

    start: U32
    pages: Annotated[list[RemotePage], Meta(max_length=MAX_KEYS)]


class RemoteBlock(msgspec.Struct, array_like=True, frozen=True):
    """Where the page of a block lies, at which place the block stands in it, and XXH3-64 of the block.

    That is of the bytes that a page of this block alone has (`contract/blocks.py`).
    """

    region: U32
    offset: U63
    place: U32
    checksum: U64


class PinnedBlocks(Message, frozen=True, tag="pinned_blocks"):
    """Answers `PinBlocks`: the blocks up to the first that is not there."""

    blocks: Annotated[list[RemoteBlock], Meta(max_length=MAX_KEYS)]


class Regions(Message, frozen=True, tag="regions"):
    """Comes unasked, before the first pinned page there is told: memory that the link may read over `scheme`."""

    scheme: Text
    regions: Annotated[list[Region], Meta(max_length=4096)]


class Taken(Message, frozen=True, tag="taken"):
    """Answers `Offer`: how many leading pages are here now, and why not more."""

    pages: U32
    reason: Text


class Pong(Message, frozen=True, tag="pong"):
    """Answers `Ping`."""


class Refused(Message, frozen=True, tag="refused"):
    """Answers any request that failed; with id 0 the link ends."""

    code: Text
    message: Annotated[str, Meta(max_length=2000)]


Reply = Opened | Measured | Pinned | PinnedBlocks | Taken | Pong | Refused
AnyMessage = Hello | Request | Regions | Reply

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


class BadPeer(Exception):
    """The other end broke the protocol; the sentence says how. It costs that link."""


def frame(message: AnyMessage) -> bytes:
    """A message as it travels."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "little") + body


class Frames:
    """Bytes as they come to messages, however they were cut on their way."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[AnyMessage]:
        """Messages that `data` completes. Raises BadPeer."""
        self._buffer += data
        found: list[AnyMessage] = []
        at = 0
        while (end := self._end(at)) is not None:
            found.append(_decode(self._buffer[at + HEADER_BYTES : end]))
            at = end
        del self._buffer[:at]
        return found

    def _end(self, at: int) -> int | None:
        """Where the frame at `at` ends; None while it is incomplete."""
        if len(self._buffer) < at + HEADER_BYTES:
            return None
        nbytes = int.from_bytes(self._buffer[at : at + HEADER_BYTES], "little")
        if not 0 < nbytes <= MAX_FRAME:
            raise BadPeer(f"a frame of {nbytes} bytes, of {MAX_FRAME} at most: no daemon of this protocol")
        end = at + HEADER_BYTES + nbytes
        return end if len(self._buffer) >= end else None


def _decode(body: bytearray) -> AnyMessage:
    try:
        message: AnyMessage = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadPeer(f"no message of protocol {PROTOCOL_VERSION}: {str(error)[:200]}") from None
    return message


def check_hello(message: AnyMessage) -> Hello:
    """The first message of the other end. Raises BadPeer."""
    if not isinstance(message, Hello):
        raise BadPeer("the first message was no hello")
    if message.version != PROTOCOL_VERSION:
        raise BadPeer(
            f"it speaks peer protocol version {message.version}, this daemon {PROTOCOL_VERSION}: "
            "install the same release on both hosts"
        )
    return message
