"""Every rule of one part of a declaration alone, with a document just inside of it and one just outside.

Owns those cases, and how a case is made. Those of whole profiles, and of what is done with them, stand beside it.
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
