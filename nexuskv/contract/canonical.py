"""Canonical bytes: the one msgpack encoding of a contract struct.

Owns the encoding and the rule that fields at their default are left out, so that a later field with a default changes
neither old bytes nor old digests. Knows nothing of what the fields mean. To reproduce it in another language:

* a struct is a map of field names to values, its tag being one of the fields; a field equal to its default is left
  out, an empty map or array without a default is not
* map keys are strings, sorted by their UTF-8 bytes; a set is an array, sorted the same way; other arrays keep order
* integers, strings, arrays and maps take the shortest form that msgpack has; an enum member is its string
"""

from typing import Any

import msgspec

_ENCODER = msgspec.msgpack.Encoder(order="sorted")


def canonical_bytes(fields: dict[str, Any]) -> bytes:
    """The map of `canonical_fields` as msgpack."""
    return _ENCODER.encode(fields)


def canonical_fields(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct as a map, its tag included, without the fields that equal their default; nested ones likewise."""
    config = struct.__struct_config__
    fields: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if value != _default(field):
            fields[field.encode_name] = _plain(value)
    return fields


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """The field's default, or msgspec.NODEFAULT, which equals no value."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return canonical_fields(value)
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
