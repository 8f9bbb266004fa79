"""Every rule about how the states and declarations of one profile fit, inside and just outside of it.

Owns those cases, as `edges` does for each part alone.
"""

from nexuskv.contract.storage import Rule
from tests.contract.storage.documents import (
    BOUNDARY,
    F16_PROFILE,
    INT8_PROFILE,
    changed,
    f16_profile,
    int8_profile,
)
from tests.contract.storage.edges import ENTIRE, FIXED, VALUE, demand, edge, kv, of_f16, of_int8

PROFILES = {
    "two states of one id": of_int8(
        Rule.STATE_ID_TWICE,
        "states",
        INT8_PROFILE["states"],
        [*INT8_PROFILE["states"], INT8_PROFILE["states"][0]],
    ),
    "two states of one value": of_int8(
        Rule.VALUE_ID_TWICE, "states.1.value_id", "value.kv.1", "value.kv.0", field="states"
    ),
    "two formats": edge(
        Rule.FORMATS_MIXED,
        "kv_storage",
        int8_profile(2),
        changed(int8_profile(2), "kv_storage.1", {"format": "f16", "state": "kv.1"}),
    ),
    "one state of two declarations": edge(
        Rule.STATE_SHARED, "kv_storage", f16_profile(2), changed(f16_profile(2), "kv_storage.1.state", "kv.0")
    ),
    "one state twice in a declaration": of_int8(
        Rule.STATE_SHARED, "kv_storage.0.scale_state", "scale.0", "kv.0", field="kv_storage"
    ),
    "state that is not there": of_f16(
        Rule.STATE_UNDECLARED, "kv_storage.0.state", "kv.0", "kv.1", field="kv_storage[0]"
    ),
    "f16 payload of another type": of_f16(
        Rule.PAYLOAD_ELEMENT_TYPE,
        "states.0.tensor.element_type",
        "F16",
        "BF16",
        field="kv_storage[0].kv.0.tensor.element_type",
    ),
    "int8 payload of another type": of_int8(
        Rule.PAYLOAD_ELEMENT_TYPE,
        "states.0.tensor.element_type",
        "I8",
        "U8",
        field="kv_storage[0].kv.0.tensor.element_type",
    ),
    "payload without keys and values": of_f16(
        Rule.PAYLOAD_SHAPE,
        "states.0.tensor.dimensions",
        [2, 4, 8],
        [4, 2, 8],
        field="kv_storage[0].kv.0.tensor.dimensions",
    ),
    "payload of more dimensions": of_f16(
        Rule.PAYLOAD_SHAPE,
        "states.0.tensor.dimensions",
        [2, 8, 4],
        [2, 1, 4, 8],
        field="kv_storage[0].kv.0.tensor.dimensions",
    ),
    "payload without heads": edge(
        Rule.PAYLOAD_EMPTY, "kv_storage[0].kv.0.tensor.dimensions", kv(1, 8), kv(0, 8)
    ),
    "payload of empty heads": edge(
        Rule.PAYLOAD_EMPTY, "kv_storage[0].kv.0.tensor.dimensions", kv(4, 1), kv(4, 0)
    ),
    "scales of another type": of_int8(
        Rule.SCALE_ELEMENT_TYPE,
        "states.1.tensor.element_type",
        "F32",
        "I32",
        field="kv_storage[0].scale.0.tensor.element_type",
    ),
    "scales of other heads": of_int8(
        Rule.SCALE_SHAPE,
        "states.1.tensor.dimensions",
        [2, 4],
        [4, 2],
        field="kv_storage[0].scale.0.tensor.dimensions",
    ),
    "scales of fewer tokens": of_int8(
        Rule.SCALE_TOKENS,
        "states.1.capacity.maximum_tokens",
        4096,
        4095,
        field="kv_storage[0].scale.0.capacity.maximum_tokens",
    ),
    "scales that begin otherwise": of_int8(
        Rule.SCALE_INITIALISATION,
        "states.1.initialisation",
        "zeroed",
        "undefined",
        field="kv_storage[0].scale.0.initialisation",
    ),
    "scales of another dependency": of_int8(
        Rule.SCALE_CHECKPOINT,
        "states.1.checkpoint",
        BOUNDARY,
        ENTIRE,
        field="kv_storage[0].scale.0.checkpoint",
    ),
    "scales without a checkpoint": of_int8(
        Rule.SCALE_CHECKPOINT,
        "states.1.checkpoint",
        BOUNDARY,
        {"kind": "unsupported"},
        field="kv_storage[0].scale.0.checkpoint",
    ),
    "payload with gaps": of_f16(
        Rule.KV_LAYOUT,
        "states.0.tensor.layout",
        {"kind": "contiguous"},
        {"kind": "strided", "strides": [32, 8, 1]},
        field="kv_storage[0].kv.0.tensor.layout",
    ),
    "scales with gaps": of_int8(
        Rule.KV_LAYOUT,
        "states.1.tensor.layout",
        {"kind": "contiguous"},
        {"kind": "strided", "strides": [4, 1]},
        field="kv_storage[0].scale.0.tensor.layout",
    ),
    "payload of a request": edge(
        Rule.KV_LIFETIME,
        "kv_storage[0].kv.0.lifetime",
        changed(F16_PROFILE, "states.0.checkpoint", {"kind": "unsupported"}),
        changed(
            changed(F16_PROFILE, "states.0.checkpoint", {"kind": "unsupported"}),
            "states.0.lifetime",
            "request",
        ),
    ),
    "payload that keeps the boundary alone": of_f16(
        Rule.KV_CHECKPOINT_CONTENTS,
        "states.0.checkpoint",
        ENTIRE,
        VALUE,
        field="kv_storage[0].kv.0.checkpoint.contents",
    ),
    "scales that keep the boundary alone": of_int8(
        Rule.KV_CHECKPOINT_CONTENTS,
        "states.1.checkpoint",
        BOUNDARY,
        VALUE,
        field="kv_storage[0].scale.0.checkpoint.contents",
    ),
    "payload of a fixed size": of_f16(
        Rule.KV_CAPACITY_KIND,
        "states.0.capacity",
        demand(128, 1),
        FIXED,
        field="kv_storage[0].kv.0.capacity",
    ),
    "more bytes a token than the tensor": of_f16(
        Rule.KV_BYTES_PER_TOKEN,
        "states.0.capacity.bytes_per_token",
        128,
        129,
        field="kv_storage[0].kv.0.capacity.bytes_per_token",
    ),
    "fewer bytes a token than the tensor": of_f16(
        Rule.KV_BYTES_PER_TOKEN,
        "states.0.capacity.bytes_per_token",
        128,
        127,
        field="kv_storage[0].kv.0.capacity.bytes_per_token",
    ),
    "more bytes a token than the scales": of_int8(
        Rule.KV_BYTES_PER_TOKEN,
        "states.1.capacity.bytes_per_token",
        32,
        64,
        field="kv_storage[0].scale.0.capacity.bytes_per_token",
    ),
}
