"""What travels on a TCP stream of pages, as bytes: encoding, decoding, and the bounds of everything.

Owns the frames. No I/O here: whoever has bytes hands them in. All integers are little-endian, no field is aligned.

    hello, first from the client, then from the server                                          16 bytes
      0  magic "nexuskv\\0"   8  u16 version  10  u16 verdict  12  u32 zero

    request, client to server                                                     8 + 36 * count bytes
      0  u8 kind (1 pull, 2 ping)   1  u8 zero   2  u16 count (a ping's is 0)   4  u32 number
      8  count times: 16 bytes token, u32 region, u64 nbytes, u64 offset

    answer, server to client, one for each request and in their order             16 + nbytes bytes
      0  u8 kind (1 pages, 2 pong, 3 refused)   1  u8 zero   2  u16 place   4  u32 number   8  u64 nbytes
      16 the pages of the request, one after the other

A refused request is the last one of its stream; `place` is that of its first stretch that the server does not
serve. Pages have no checksum here: they are checked where they are committed.
"""

import struct
from collections.abc import Sequence
from itertools import starmap
from typing import NamedTuple

from nexuskv_transport.regions import Stretch

VERSION = 1
MAGIC = b"nexuskv\0"
WELCOME, OTHER_VERSION, NOT_ADMITTED = range(3)
PULL, PING = 1, 2
PAGES, PONG, REFUSED = 1, 2, 3
MAX_COUNT = 1000
"""Stretches of one request: with the header they fit the 1024 pieces of a sendmsg or recvmsg."""

_hello = struct.Struct("<8sHHI")
_request = struct.Struct("<BBHI")
_stretch = struct.Struct("<16sIQQ")
_answer = struct.Struct("<BBHIQ")
HELLO_BYTES, ANSWER_BYTES = _hello.size, _answer.size
MAX_REQUEST_BYTES = _request.size + MAX_COUNT * _stretch.size


class Violation(Exception):
    """Bytes that no peer of this protocol sends: its connection is over."""


class Request(NamedTuple):
    """What a client asks: `nbytes` in all. A ping wants nothing."""

    kind: int
    number: int
    wanted: list[Stretch]
    nbytes: int


class Answer(NamedTuple):
    """The header of an answer; `nbytes` of pages follow it."""

    kind: int
    place: int
    number: int
    nbytes: int


def encode_hello(verdict: int = WELCOME, version: int = VERSION) -> bytes:
    """The first bytes of either side."""
    return _hello.pack(MAGIC, version, verdict, 0)


def decode_hello(data: bytes | bytearray) -> tuple[int, int]:
    """Version and verdict. Raises Violation for bytes of another protocol."""
    magic, version, verdict, _ = _hello.unpack(data)
    if magic != MAGIC:
        raise Violation("it does not speak the page protocol of nexuskv")
    return version, verdict


def encode_pull(number: int, wanted: Sequence[Stretch]) -> bytes:
    """At least one and at most MAX_COUNT stretches."""
    return _request.pack(PULL, 0, len(wanted), number) + b"".join(starmap(_stretch.pack, wanted))


def encode_ping(number: int) -> bytes:
    """A request that only wants an answer."""
    return _request.pack(PING, 0, 0, number)


def encode_answer(kind: int, number: int, nbytes: int = 0, place: int = 0) -> bytes:
    """The header of an answer."""
    return _answer.pack(kind, 0, place, number, nbytes)


def decode_answer(data: bytes | bytearray) -> Answer:
    """Raises Violation for a kind that does not exist."""
    kind, _, place, number, nbytes = _answer.unpack(data)
    if kind not in {PAGES, PONG, REFUSED}:
        raise Violation(f"it sent an answer of unknown kind {kind}")
    return Answer(kind, place, number, nbytes)


class Requests:
    """A server's decoder: takes bytes as they come, gives requests as they become whole.

    Keeps at most the beginning of one request, so never more than MAX_REQUEST_BYTES.
    """

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: memoryview) -> list[Request]:
        """What is whole now. Raises Violation where the bytes are no request."""
        if self._begun:
            data = memoryview(self._begun + data)
        requests, at = [], 0
        while len(data) - at >= _request.size:
            kind, zero, count, number = _request.unpack_from(data, at)
            if zero or kind not in {PULL, PING} or (kind == PULL) != (count > 0) or count > MAX_COUNT:
                raise Violation(f"it sent a request of unknown kind {kind} or with {count} stretches")
            start = at + _request.size
            end = start + count * _stretch.size
            if end > len(data):
                break
            wanted = list(_stretch.iter_unpack(data[start:end]))
            requests.append(Request(kind, number, wanted, sum([nbytes for _, _, nbytes, _ in wanted])))
            at = end
        self._begun = bytes(data[at:])
        return requests
