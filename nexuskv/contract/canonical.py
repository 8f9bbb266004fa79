"""Canonical bytes: the one msgpack encoding of a contract struct.

Owns the encoding and the rule that fields at their default are left out, so that a later field with a default changes
neither old bytes nor old digests. Knows nothing of what the fields mean. To reproduce it in another language:

* a struct is a map of field name to value with its tag among the fields; fields equal to their default are left out
* map keys are sorted by their UTF-8 bytes; sets are arrays sorted the same way; other sequences keep their order
* integers, strings, arrays and maps take the shortest msgpack form; an enum member is its string
"""

from typing import Any

import msgspec

_ENCODER = msgspec.msgpack.Encoder(order="sorted")


def canonical_bytes(fields: dict[str, Any]) -> bytes:
    """The map of `canonical_fields` as msgpack."""
    return _ENCODER.encode(fields)


def canonical_fields(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct as a map without the fields that equal their default, its tag included; nested structs likewise."""
    config = struct.__struct_config__
    fields: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if value != field.default:
            fields[field.encode_name] = _canonical(value)
    return fields


def _canonical(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return canonical_fields(value)
    if isinstance(value, tuple):
        return [_canonical(item) for item in value]
    return value
