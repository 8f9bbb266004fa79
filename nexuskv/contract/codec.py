"""Descriptors as bytes and back: canonical msgpack, and JSON for people and for other hosts.

Owns the two forms and their decoding with errors that name the field. Knows no kind but through the union of them.
"""

import msgspec

from nexuskv.contract import faults
from nexuskv.contract.canonical import canonical_bytes, canonical_fields
from nexuskv.contract.checks import MAX_PAGE_BYTES, check_page_limit
from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.kinds import AnyDescriptor

_MSGPACK = msgspec.msgpack.Decoder(AnyDescriptor)
_JSON = msgspec.json.Decoder(AnyDescriptor)
_JSON_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode(descriptor: Descriptor) -> bytes:
    """Canonical msgpack: equal descriptors have equal bytes."""
    return canonical_bytes(canonical_fields(descriptor))


def decode(data: bytes | bytearray | memoryview, max_page_bytes: int = MAX_PAGE_BYTES) -> AnyDescriptor:
    """The descriptor of msgpack bytes, canonical or not. Raises DescriptorError, also above `max_page_bytes`."""
    with faults.named():
        descriptor = _MSGPACK.decode(data)
    check_page_limit(descriptor, max_page_bytes)
    return descriptor


def to_json(descriptor: Descriptor) -> bytes:
    """JSON with every field, those at their default too."""
    return _JSON_ENCODER.encode(descriptor)


def from_json(data: bytes | str, max_page_bytes: int = MAX_PAGE_BYTES) -> AnyDescriptor:
    """The descriptor of a JSON text. Raises DescriptorError, also above `max_page_bytes`."""
    with faults.named():
        descriptor = _JSON.decode(data)
    check_page_limit(descriptor, max_page_bytes)
    return descriptor
