"""What a conflict over one id reports."""

from typing import Any

import pytest
from hypothesis import given

from nexuskv.contract import AnyDescriptor, Window, differing_fields, mamba2, mha
from tests.contract.strategies import descriptors

INT8 = "int8_per_token_head_f32_scale_v1"
GEOMETRY: dict[str, Any] = {
    "layers": 2,
    "kv_heads": 4,
    "head_dim": 8,
    "dtype": "float16",
    "engine_family": "VLLM",
}
BASE = mha("a", **GEOMETRY)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"engine_family": "SGLANG"}, ["engine_family"]),
        ({"granularity": "BLOCK"}, ["granularity"]),
        ({"kv_heads": 8}, ["dims.kv_heads", "layout.stride_bytes"]),
        (
            {"dtype": "float32"},
            ["tensor_specs[0].dtype", "tensor_specs[1].dtype", "layout.stride_bytes"],
        ),
        ({"dtype": "bfloat16"}, ["tensor_specs[0].dtype", "tensor_specs[1].dtype"]),
        (
            {"dimension_order": "HND"},
            ["tensor_specs[0].shape", "tensor_specs[1].shape", "layout.dimension_order"],
        ),
        ({"arrangement": "interleaved"}, ["layout.arrangement"]),
        ({"page_tokens": 32}, ["layout.page_tokens", "layout.stride_bytes"]),
        ({"compatibility_flags": ["COW_BRANCH"]}, ["compatibility_flags"]),
        ({"reuse": Window(tokens=64)}, ["reuse.rule", "reuse.tokens"]),
        (
            {"dtype": "int8", "quantization": INT8},
            ["tensor_specs", "layout.stride_bytes", "quantization.scale_tensors", "quantization.scheme"],
        ),
        (
            {"layers": None},
            ["tensor_specs[0].shape", "tensor_specs[1].shape", "dims.layers"],
        ),
    ],
)
def test_each_differing_field_is_named(change: dict[str, Any], fields: list[str]) -> None:
    other = mha("a", **(GEOMETRY | change))
    assert sorted(differing_fields(BASE, other)) == sorted(fields)
    assert sorted(differing_fields(other, BASE)) == sorted(fields)


def test_another_kind_under_the_same_id() -> None:
    other = mamba2("a", heads=2, head_dim=4, state_size=8, dtype="float16", engine_family="VLLM")
    fields = differing_fields(BASE, other)
    assert fields[0] == "semantic_type"
    assert "dims.kv_heads" in fields
    assert "dims.heads" in fields


@given(descriptors(), descriptors())
def test_equal_descriptors_and_no_others_have_no_differing_field(a: AnyDescriptor, b: AnyDescriptor) -> None:
    assert differing_fields(a, a) == []
    assert bool(differing_fields(a, b)) == (a != b)
