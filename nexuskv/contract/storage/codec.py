"""Storage declarations as JSON and back.

Owns the text form: every field is written, unknown ones are refused. Knows nothing of whether a profile is valid; what
one part says for itself is checked while it is read.
"""

from functools import cache
from typing import TypeVar

import msgspec

from nexuskv.contract.storage.form import named
from nexuskv.contract.storage.states import Part

P = TypeVar("P", bound=Part)
_ENCODER = msgspec.json.Encoder(order="deterministic")


def to_json(part: Part) -> bytes:
    """A family, profile, program or any part of them as JSON."""
    return _ENCODER.encode(part)


def from_json(data: bytes | str, kind: type[P]) -> P:
    """The `kind` that a JSON text holds, such as Family, Profile or Program. Raises StorageError."""
    with named():
        part: P = _decoder(kind).decode(data)
    return part


@cache
def _decoder(kind: type[P]) -> "msgspec.json.Decoder[P]":
    return msgspec.json.Decoder(kind)
