"""Storage declarations as JSON documents, whole and with one thing changed.

Owns the valid ones that every test starts from. Knows nothing of how a document is read.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nexuskv.contract.storage import Family, Format, Program, check_coverage, from_json, validate
from nexuskv.contract.storage.declarations import Profile

Document = dict[str, Any]
INT8 = "int8_per_token_head_f32_scale_v1"

BOUNDARY = {
    "kind": "completed_boundary",
    "contents": "prefix_positions",
    "input_dependency": "exact_token_prefix",
}


def state(
    name: str, element_type: str, dimensions: list[int], token_bytes: int, tokens: int = 4096
) -> Document:
    """A state that fits keys and values, at the value "value.NAME"."""
    return {
        "id": name,
        "value_id": f"value.{name}",
        "tensor": {
            "dimensions": dimensions,
            "element_type": element_type,
            "layout": {"kind": "contiguous"},
        },
        "lifetime": "sequence",
        "initialisation": "zeroed",
        "capacity": {"kind": "token_scaled", "bytes_per_token": token_bytes, "maximum_tokens": tokens},
        "checkpoint": BOUNDARY,
    }


def f16_profile(layers: int = 1, *, name: str = "f16") -> Document:
    """Layers of 4 heads of 8: 128 bytes a token and layer."""
    return {
        "id": name,
        "states": [state(f"kv.{at}", "F16", [2, 4, 8], 128) for at in range(layers)],
        "kv_storage": [{"format": "f16", "state": f"kv.{at}"} for at in range(layers)],
    }


def int8_profile(layers: int = 1, *, name: str = "int8") -> Document:
    """Layers of 4 heads of 8: 64 bytes a token and layer, and 32 of scales."""
    states = [
        part
        for at in range(layers)
        for part in (
            state(f"kv.{at}", "I8", [2, 4, 8], 64),
            state(f"scale.{at}", "F32", [2, 4], 32),
        )
    ]
    declared = [
        {"format": INT8, "payload_state": f"kv.{at}", "scale_state": f"scale.{at}"} for at in range(layers)
    ]
    return {"id": name, "states": states, "kv_storage": declared}


def plain_profile(*, name: str = "plain") -> Document:
    """No keys and values: one state of a request."""
    kept = state("h", "F32", [16], 64) | {"lifetime": "request", "checkpoint": {"kind": "unsupported"}}
    return {"id": name, "states": [kept | {"capacity": {"kind": "fixed_per_scope", "bytes": 64}}]}


F16_PROFILE, INT8_PROFILE = f16_profile(), int8_profile()


def node(operation: str, inputs: Iterable[str], name: str = "attention") -> Document:
    """A node of a program."""
    return {"id": name, "operation": operation, "inputs": list(inputs)}


def inputs(at: Mapping[int, str], count: int = 12) -> list[str]:
    """`count` inputs, those of `at` at their ports."""
    return [at.get(port, f"x{port}") for port in range(count)]


def program(*nodes: Document) -> Document:
    return {"nodes": list(nodes)}


def family(*profiles: Document) -> Document:
    return {"id": "family", "profiles": list(profiles)}


def changed(document: Document, path: str, value: object) -> Document:
    """A copy with the item at a path like `states.0.lifetime` set to `value`."""
    copied = copy.deepcopy(document)
    *outer, last = path.split(".")
    target: Any = copied
    for step in outer:
        target = target[int(step) if step.isdigit() else step]
    target[int(last) if last.isdigit() else last] = value
    return copied


def read_profile(document: Document) -> Profile:
    return from_json(msgspec.json.encode(document), Profile)


def read_family(document: Document) -> Family:
    return from_json(msgspec.json.encode(document), Family)


def read_program(document: Document) -> Program:
    return from_json(msgspec.json.encode(document), Program)


def validated(document: Document) -> Format | None:
    """What validation answers of a profile's document."""
    return validate(read_profile(document))


def covered(profile: Document, *nodes: Document) -> Format | None:
    """What coverage answers of a profile and a program of `nodes`."""
    return check_coverage(read_profile(profile), read_program(program(*nodes)))
