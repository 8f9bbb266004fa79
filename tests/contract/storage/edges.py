"""Every rule of a profile by itself, with a document just inside of it and one just outside.

Owns those cases. Those of programs, families and descriptors are in the tests about them.
"""

from collections.abc import Callable
from typing import NamedTuple

from nexuskv.contract.storage import Rule
from tests.contract.storage.documents import (
    BOUNDARY,
    F16_PROFILE,
    INT8_PROFILE,
    Document,
    changed,
    f16_profile,
    int8_profile,
    plain_profile,
    state,
    validated,
)

MAX = 2**63 - 1


class Edge(NamedTuple):
    """`inside` returns; `outside` raises StorageError of `rule` that names `field`."""

    rule: Rule
    field: str
    inside: Callable[[], object]
    outside: Callable[[], object]


def edge(rule: Rule, field: str, inside: Document, outside: Document) -> Edge:
    """Of two profiles."""
    return Edge(rule, field, lambda: validated(inside), lambda: validated(outside))


def of_f16(rule: Rule, path: str, inside: object, outside: object, field: str = "") -> Edge:
    """Two values at one path of the F16 profile."""
    return edge(
        rule, field or _field(path), changed(F16_PROFILE, path, inside), changed(F16_PROFILE, path, outside)
    )


def of_int8(rule: Rule, path: str, inside: object, outside: object, field: str = "") -> Edge:
    """Two values at one path of the int8 profile."""
    return edge(
        rule, field or _field(path), changed(INT8_PROFILE, path, inside), changed(INT8_PROFILE, path, outside)
    )


def of_plain(rule: Rule, path: str, inside: object, outside: object) -> Edge:
    """Two values at one path of the profile without keys and values."""
    plain = plain_profile()
    return edge(rule, _field(path), changed(plain, path, inside), changed(plain, path, outside))


def _field(path: str) -> str:
    """`states.0.capacity` as errors write it."""
    first, _, rest = path.partition(".")
    index, _, rest = rest.partition(".")
    return f"{first}[{index}].{rest}" if index.isdigit() else path


def tensor(dimensions: list[int], element_type: str = "I8", strides: list[int] | None = None) -> Document:
    layout = {"kind": "contiguous"} if strides is None else {"kind": "strided", "strides": strides}
    return {"dimensions": dimensions, "element_type": element_type, "layout": layout}


def holding(kept: Document, nbytes: int = MAX) -> Document:
    """A profile with one state of that tensor and a demand that no tensor exceeds."""
    changed_tensor = changed(plain_profile(), "states.0.tensor", kept)
    return changed(changed_tensor, "states.0.capacity.bytes", nbytes)


def demand(per_token: int, tokens: int) -> Document:
    return {"kind": "token_scaled", "bytes_per_token": per_token, "maximum_tokens": tokens}


def kv(heads: int, head_dim: int) -> Document:
    """The F16 profile with another geometry, its demand following."""
    return f16_profile() | {
        "states": [state("kv.0", "F16", [2, heads, head_dim], max(4 * heads * head_dim, 1))]
    }


FIXED = {"kind": "fixed_per_scope", "bytes": 128}
VALUE = {**BOUNDARY, "contents": "boundary_value"}
ENTIRE = {**BOUNDARY, "input_dependency": "entire_token_input"}

PARTS = {
    "unknown field of a profile": edge(
        Rule.UNKNOWN_FIELD, "colour", F16_PROFILE, F16_PROFILE | {"colour": "red"}
    ),
    "unknown field of a declaration": edge(
        Rule.UNKNOWN_FIELD,
        "kv_storage[0].scale_state",
        F16_PROFILE,
        changed(F16_PROFILE, "kv_storage.0.scale_state", "kv.0"),
    ),
    "unknown lifetime": of_plain(Rule.MALFORMED, "states.0.lifetime", "step", "forever"),
    "empty id": of_f16(Rule.BAD_ID, "id", "a", ""),
    "longest id": of_f16(Rule.BAD_ID, "id", "a" * 160, "a" * 161),
    "characters of an id": of_f16(Rule.BAD_ID, "states.0.value_id", "aZ09._:/-", "a b"),
    "id of a declared state": of_f16(Rule.BAD_ID, "kv_storage.0.state", "kv.0", "kv.0\n"),
    "axes of a tensor": edge(
        Rule.TENSOR_RANK, "states[0].tensor.dimensions", holding(tensor([1] * 8)), holding(tensor([1] * 9))
    ),
    "negative dimension": edge(
        Rule.TENSOR_DIMENSION, "states[0].tensor.dimensions", holding(tensor([0])), holding(tensor([-1]))
    ),
    "dimension of 64 bits": edge(
        Rule.TENSOR_DIMENSION,
        "states[0].tensor.dimensions",
        holding(tensor([MAX])),
        holding(tensor([MAX + 1])),
    ),
    "tensor of 64 bits": edge(
        Rule.TENSOR_OVERFLOW,
        "states[0].tensor.dimensions",
        holding(tensor([2**60, 7])),
        holding(tensor([2**60, 8])),
    ),
    "strided tensor of 64 bits": edge(
        Rule.TENSOR_OVERFLOW,
        "states[0].tensor.dimensions",
        holding(tensor([2], strides=[MAX - 1])),
        holding(tensor([2], strides=[MAX])),
    ),
    "a stride for each dimension": edge(
        Rule.STRIDE_COUNT,
        "states[0].tensor.layout.strides",
        holding(tensor([2, 2], strides=[2, 1])),
        holding(tensor([2, 2], strides=[2])),
    ),
    "stride of nothing": edge(
        Rule.STRIDE_SIZE,
        "states[0].tensor.layout.strides",
        holding(tensor([2], strides=[1])),
        holding(tensor([2], strides=[0])),
    ),
    "fixed demand of nothing": edge(
        Rule.CAPACITY_ZERO, "states[0].capacity.bytes", holding(tensor([0]), 1), holding(tensor([0]), 0)
    ),
    "demand of nothing a token": edge(
        Rule.CAPACITY_ZERO,
        "states[0].capacity.bytes_per_token",
        changed(plain_profile(), "states.0.capacity", demand(1, 64)),
        changed(plain_profile(), "states.0.capacity", demand(0, 64)),
    ),
    "no tokens": of_f16(Rule.CAPACITY_TOKENS_ZERO, "states.0.capacity.maximum_tokens", 1, 0),
    "fixed demand of 64 bits": edge(
        Rule.CAPACITY_OVERFLOW,
        "states[0].capacity.bytes",
        holding(tensor([1]), MAX),
        holding(tensor([1]), MAX + 1),
    ),
    "demand of 64 bits": of_f16(
        Rule.CAPACITY_OVERFLOW,
        "states.0.capacity.maximum_tokens",
        2**56 - 1,
        2**56,
        field="states[0].capacity.bytes_per_token",
    ),
    "fixed demand below the tensor": edge(
        Rule.CAPACITY_BELOW_TENSOR, "states[0].capacity", holding(tensor([64]), 64), holding(tensor([64]), 63)
    ),
    "demand below the tensor": edge(
        Rule.CAPACITY_BELOW_TENSOR,
        "states[0].capacity",
        changed(plain_profile(), "states.0.capacity", demand(8, 8)),
        changed(plain_profile(), "states.0.capacity", demand(9, 7)),
    ),
    "demand below a strided tensor": edge(
        Rule.CAPACITY_BELOW_TENSOR,
        "states[0].capacity",
        holding(tensor([3], strides=[10]), 21),
        holding(tensor([3], strides=[10]), 20),
    ),
    "checkpoint of a request": edge(
        Rule.CHECKPOINT_LIFETIME,
        "states[0].checkpoint",
        changed(changed(plain_profile(), "states.0.checkpoint", VALUE), "states.0.lifetime", "sequence"),
        changed(plain_profile(), "states.0.checkpoint", VALUE),
    ),
}

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
