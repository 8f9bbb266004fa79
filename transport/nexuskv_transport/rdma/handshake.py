"""What two ends tell each other to bring a queue pair up, and its frames on the control connection.

Owns the messages and their encoding. Knows no verbs: addresses of queue pairs are numbers here. For each lane one offer
goes from the pulling end and one answer comes back:

    u32 length, little-endian | msgpack of Offer, Answer or Turned
"""

import socket
from typing import Annotated

import msgspec
from msgspec import Meta

from nexuskv.errors import Disconnected, RemoteError
from nexuskv_transport.base import U32, U63

MOST_BYTES = 4096
PROBE_BYTES = 64
U24 = Annotated[int, Meta(ge=0, lt=2**24)]
Depth = Annotated[int, Meta(ge=1, le=255)]


class Address(msgspec.Struct, frozen=True, array_like=True):
    """A queue pair, as its peer has to know it. `gid` in eight groups of four hexadecimal digits."""

    queue_pair: U24
    sequence: U24
    gid: Annotated[str, Meta(pattern=r"^([0-9a-f]{4}:){7}[0-9a-f]{4}$")]
    kind: Annotated[int, Meta(ge=0, le=2)]
    lid: Annotated[int, Meta(ge=0, lt=2**16)]
    mtu: Annotated[int, Meta(ge=1, le=5)]
    initiated: Depth
    served: Depth


class Offer(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """The pulling end wants a lane to `tenant`'s memory."""

    tenant: Annotated[str, Meta(min_length=1, max_length=256)]
    address: Address


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """The lane is ready at the serving end. `probe` are the bytes that can be read at `probe_address`, as a proof."""

    address: Address
    probe: Annotated[bytes, Meta(min_length=PROBE_BYTES, max_length=PROBE_BYTES)]
    probe_address: Annotated[int, Meta(ge=0)]
    probe_rkey: U32


class Turned(msgspec.Struct, frozen=True, array_like=True, tag="turned"):
    """The serving end makes no such lane, and says why."""

    sentence: Annotated[str, Meta(max_length=1024)]


Message = Offer | Answer | Turned
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)
__all__ = ["MOST_BYTES", "PROBE_BYTES", "U63", "Address", "Answer", "Message", "Offer", "Turned"]


def send(stream: socket.socket, message: Message) -> None:
    """Raises OSError."""
    body = _encoder.encode(message)
    stream.sendall(len(body).to_bytes(4, "little") + body)


def receive(stream: socket.socket) -> Message:
    """The next message. Raises Disconnected at the end of the stream, RemoteError for what is no message, OSError."""
    nbytes = int.from_bytes(_exactly(stream, 4), "little")
    if nbytes > MOST_BYTES:
        raise RemoteError(f"the peer announces {nbytes} bytes: it speaks another protocol")
    try:
        return _decoder.decode(_exactly(stream, nbytes))
    except msgspec.MsgspecError as error:
        raise RemoteError(f"the peer sends what is no message of this protocol: {error}") from error


def _exactly(stream: socket.socket, nbytes: int) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        some = stream.recv(nbytes - len(data))
        if not some:
            raise Disconnected("the peer closed the control connection")
        data += some
    return bytes(data)
