"""Messages to bytes and back, with an error that tells a stranger what was wrong.

Owns the encoders and decoders. Knows nothing of sockets; what a faulty message does to a session is the engine's
affair.
"""

import msgspec

from nexuskv import errors
from nexuskv.protocol.language import Notice, Reply, Request
from nexuskv.protocol.messages import MAX_KEYS, MAX_MESSAGE_BYTES

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_replies = msgspec.msgpack.Decoder(Reply | Notice)
_anything = msgspec.msgpack.Decoder()
QUOTED = 100
"""Characters of a faulty message that its refusal repeats."""

encode = _encoder.encode
"""Message to msgpack bytes."""

decode_reply = _replies.decode
"""Bytes to a reply or notice; msgspec.DecodeError if they are none."""


class BadMessage(errors.BadRequest):
    """A message that is no request. `fatal`: its sender speaks another language; `id` is 0 if unreadable."""

    def __init__(self, message: str, *, request_id: int = 0, fatal: bool = True) -> None:
        super().__init__(message)
        self.id = request_id
        self.fatal = fatal


def decode_request(data: bytes | bytearray | memoryview) -> Request:
    """Bytes to a request. Raises BadMessage."""
    try:
        return _requests.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:  # the latter for arrays nested a thousand deep
        raise _explain(data, error) from None


def oversized(nbytes: int) -> BadMessage:
    """The error for a message of `nbytes`, more than one may have."""
    return BadMessage(
        f"message of at least {nbytes} bytes: the limit is {MAX_MESSAGE_BYTES}; send at most {MAX_KEYS} keys a message"
    )


def _explain(data: bytes | bytearray | memoryview, error: Exception) -> BadMessage:
    try:
        envelope = _anything.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return BadMessage(f"not a msgpack message of the nexuskv protocol: {_short(str(error))}")
    match envelope:
        case [str(tag), int(request_id), *_] if type(request_id) is int and 0 <= request_id < 2**63:
            return BadMessage(_sentence(tag, error), request_id=request_id, fatal=False)
    return BadMessage(f"a request is a msgpack array [tag, id, ...]: {_short(str(error))}")


def _sentence(tag: str, error: Exception) -> str:
    text = str(error)
    if "Invalid value" in text and text.endswith("`$[0]`"):
        return f"unknown request {_short(tag)!r}: this daemon's protocol has none of that name"
    if f"length <= {MAX_KEYS}" in text:
        return f"{tag}: more than {MAX_KEYS} in one message; split the call ({text})"
    return f"{tag}: {text}"


def _short(text: str) -> str:
    """A sender's own words may be as long as a message: quoted whole, the refusal would be longer than one."""
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."
