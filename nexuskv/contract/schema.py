"""The published JSON Schema of a descriptor.

Owns the export. Knows no field: msgspec derives the schema from the structs that the decoder is built from. What only
when fields meet (an unbound axis, a missing role) is beyond a schema and is said by `checks`.
"""

from typing import Any

import msgspec

from nexuskv.contract.kinds import AnyDescriptor

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Schema of the JSON form of every kind, plain JSON values throughout."""
    schema = {"$schema": DIALECT, "title": "NexusKV descriptor", **msgspec.json.schema(AnyDescriptor)}
    return msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
