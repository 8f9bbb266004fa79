"""The published JSON Schema takes every descriptor there is and refuses what a schema can refuse."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from nexuskv.contract import PRESETS, AnyDescriptor, Descriptor, json_schema, mha, to_json
from tests.contract.strategies import descriptors

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def document(descriptor: Descriptor) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(to_json(descriptor))
    return loaded


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_is_valid(preset: Descriptor) -> None:
    VALIDATOR.validate(document(preset))


@settings(max_examples=50)
@given(descriptors())
def test_every_descriptor_is_valid(descriptor: AnyDescriptor) -> None:
    VALIDATOR.validate(document(descriptor))


@pytest.mark.parametrize(
    "change",
    [
        {"descriptor_id": ""},
        {"descriptor_id": "a b"},
        {"descriptor_id": "x" * 161},
        {"semantic_type": "MHA"},
        {"engine_family": "TORCH"},
        {"colour": "red"},
        {"dims": {"kv_heads": 0}},
        {"layout": {"page_tokens": 0}},
        {"reuse": {"rule": "WINDOW", "tokens": 0}},
        {"compatibility_flags": ["FAST"]},
        {"tensor_specs": [{"name": "K", "role": "KEY", "dtype": "int8", "shape": []}]},
    ],
)
def test_a_document_with_a_fault_is_invalid(change: dict[str, Any]) -> None:
    good = document(mha("a", kv_heads=4, head_dim=8, dtype="float16", engine_family="VLLM"))
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(good | change)
