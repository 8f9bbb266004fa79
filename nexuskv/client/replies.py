"""What the daemon sent, as a message or as the error that it stands for.

Owns the table of errors by their wire names. Knows nothing of sockets, or of who asked.
"""

from typing import TypeVar

import msgspec

from nexuskv import errors
from nexuskv.errors import NexusError, RemoteError
from nexuskv.protocol import branches as b
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Notice, Reply, Request

R = TypeVar("R", bound=m.Message)
_ERRORS: dict[str, type[NexusError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, NexusError)
}


def expected_of(reply: m.Message, expected: type[R]) -> R:
    """`reply` when it is of that kind. Raises the error that it is instead, or RemoteError."""
    if type(reply) is expected:
        return reply
    if isinstance(reply, m.Refused):
        raise error_of(reply)
    raise RemoteError(f"the daemon answered with {type(reply).__name__} instead of {expected.__name__}")


def decode(data: memoryview) -> Reply | Notice:
    """A message that came. Raises RemoteError."""
    try:
        message: Reply | Notice = codec.decode_reply(data)
    except msgspec.DecodeError as error:
        raise RemoteError(
            f"the daemon sent what is no message of protocol {m.PROTOCOL_VERSION}: {error}"
        ) from error
    return message


def error_of(refusal: m.Refused) -> NexusError:
    """The error that a refusal names."""
    kind = _ERRORS.get(refusal.code, RemoteError)
    if kind is errors.ArenaFull:
        return errors.ArenaFull(refusal.message, refusal.numbers)
    if kind is errors.DescriptorError:
        field, _, text = refusal.message.partition(": ")
        return errors.DescriptorError(field, text)
    return kind(refusal.message)


def undoing_of(reply: m.Message) -> Request | None:
    """What gives back all that a reply granted, if it did, to somebody who does not wait for it any more."""
    match reply:
        case m.Reserved() | m.ReservedGroup() | b.Appending():
            return m.Abort(0, reply.reservation) if reply.reservation else None
        case b.Branched():
            return b.DropBranches(0, [reply.row.branch])
        case b.Forked():
            return b.DropBranches(0, list(range(reply.first, reply.first + reply.count)))
    return None
