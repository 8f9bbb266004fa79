"""The constructors of each kind: what a caller gets from a line of geometry."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given

from nexuskv import contract
from nexuskv.contract import (
    AllPages,
    AnyDescriptor,
    DType,
    LastCheckpoint,
    Role,
    Scheme,
    Window,
    mamba2,
    mha,
    mla,
)
from tests.contract.strategies import descriptors

INT8 = "int8_per_token_head_f32_scale_v1"


def geometry(descriptor: AnyDescriptor) -> dict[str, tuple[str, tuple[int, ...]]]:
    places = zip(descriptor.tensor_specs, descriptor.page_layout.tensors, strict=True)
    return {spec.name: (spec.dtype.value, place.shape) for spec, place in places}


def test_mha_of_the_readme() -> None:
    d = contract.mha(
        "llama-3-8b-page16",
        layers=32,
        kv_heads=8,
        head_dim=128,
        page_tokens=16,
        dtype="bfloat16",
        engine_family="VLLM",
    )
    assert d.semantic_type == "MHA_KV"
    assert d.descriptor_id == "llama-3-8b-page16"
    assert (d.engine_family, d.granularity) == ("VLLM", "PAGE")
    assert d.compatibility_flags == {"EXACT_REUSE", "PREFIX_REUSE", "ZERO_COPY_RDMA"}
    assert d.reuse == AllPages()
    assert d.dims == {"layers": 32, "kv_heads": 8, "head_dim": 128}
    assert geometry(d) == {"key": ("bfloat16", (32, 16, 8, 128)), "value": ("bfloat16", (32, 16, 8, 128))}
    assert [spec.role for spec in d.tensor_specs] == [Role.KEY, Role.VALUE]


def test_mha_of_one_layer_has_no_layer_axis() -> None:
    d = mha("one-layer", kv_heads=8, head_dim=128, dtype="float16", engine_family="SGLANG")
    assert geometry(d) == {"key": ("float16", (16, 8, 128)), "value": ("float16", (16, 8, 128))}


def test_hnd_puts_heads_before_tokens() -> None:
    d = mha(
        "hnd",
        layers=2,
        kv_heads=8,
        head_dim=128,
        dtype="float16",
        engine_family="VLLM",
        dimension_order="HND",
    )
    assert geometry(d)["key"] == ("float16", (2, 8, 16, 128))
    assert d.tensor_specs[0].shape == ("layers", "kv_heads", "page_tokens", "head_dim")


@pytest.mark.parametrize(
    ("scheme", "dtype", "scale_shape"),
    [
        ("fp8_e4m3", "float8_e4m3fn", (2, 8)),
        ("fp8_e5m2", "float8_e5m2", (2, 8)),
        ("int4", "int4", (2, 16, 8)),
        (INT8, "int8", (2, 16, 8)),
    ],
)
def test_quantised_mha_has_scale_tensors(scheme: str, dtype: str, scale_shape: tuple[int, ...]) -> None:
    d = mha("q", layers=2, kv_heads=8, head_dim=128, dtype=dtype, engine_family="VLLM", quantization=scheme)
    assert d.quantization.scheme == scheme
    assert d.quantization.scale_tensors == ("key_scale", "value_scale")
    assert geometry(d)["key_scale"] == geometry(d)["value_scale"] == ("float32", scale_shape)


def test_scales_follow_the_dimension_order() -> None:
    d = mha(
        "q",
        kv_heads=8,
        head_dim=128,
        dtype="int8",
        engine_family="VLLM",
        quantization=INT8,
        dimension_order="HND",
    )
    assert geometry(d)["key_scale"] == ("float32", (8, 16))


def test_mla() -> None:
    d = mla("latent", layers=61, dtype="bfloat16", engine_family="SGLANG")
    assert d.semantic_type == "MLA_LATENT"
    assert geometry(d) == {"latent": ("bfloat16", (61, 16, 512)), "rope_k": ("bfloat16", (61, 16, 64))}
    assert "ZERO_COPY_RDMA" in d.compatibility_flags


@pytest.mark.parametrize(
    ("scheme", "dtype", "scale_shape"),
    [("fp8_e4m3", "float8_e4m3fn", (16, 4)), (INT8, "int8", (16,)), ("int4", "int4", (16,))],
)
def test_quantised_mla_keeps_its_rope_key_as_it_is(
    scheme: str, dtype: str, scale_shape: tuple[int, ...]
) -> None:
    d = mla("q", dtype=dtype, engine_family="VLLM", quantization=scheme)
    assert list(geometry(d)) == ["latent", "latent_scale", "rope_k"]
    assert geometry(d)["latent_scale"] == ("float32", scale_shape)
    assert geometry(d)["rope_k"] == ("bfloat16", (16, 64))


def test_mamba2_is_a_checkpoint() -> None:
    d = mamba2(
        "m", layers=3, heads=80, head_dim=64, state_size=128, dtype="bfloat16", engine_family="VLLM", groups=8
    )
    assert (d.semantic_type, d.granularity, d.reuse) == ("SSM_MAMBA2", "CHECKPOINT", LastCheckpoint())
    assert geometry(d) == {
        "state": ("bfloat16", (3, 80, 128, 64)),
        "conv": ("bfloat16", (3, 80 * 64 + 2 * 8 * 128, 4)),
    }


def test_mamba2_may_keep_its_state_wider() -> None:
    d = mamba2(
        "m", heads=2, head_dim=4, state_size=8, dtype="bfloat16", state_dtype="float32", engine_family="VLLM"
    )
    assert geometry(d) == {"state": ("float32", (2, 8, 4)), "conv": ("bfloat16", (24, 4))}


def test_a_snapshot_does_not_grow_with_the_tokens_before_it() -> None:
    sizes = {
        mamba2(
            "m", heads=2, head_dim=4, state_size=8, dtype="bfloat16", engine_family="VLLM", page_tokens=tokens
        ).page_bytes
        for tokens in (1, 256, 1 << 20)
    }
    assert len(sizes) == 1


def test_a_sliding_window_is_declared() -> None:
    d = mha("w", kv_heads=1, head_dim=8, dtype="float16", engine_family="VLLM", reuse=Window(tokens=4096))
    assert d.reuse == Window(tokens=4096)


def test_words_and_members_build_the_same() -> None:
    words = mha("a", kv_heads=1, head_dim=8, dtype="int8", engine_family="VLLM", quantization=INT8)
    members = mha(
        "a",
        kv_heads=1,
        head_dim=8,
        dtype=DType.INT8,
        engine_family=contract.EngineFamily.VLLM,
        quantization=Scheme.INT8_PER_TOKEN_HEAD,
    )
    assert words == members


def test_a_struct_built_from_plain_values_equals_the_constructors() -> None:
    d = mha("a", kv_heads=1, head_dim=8, dtype="float16", engine_family="VLLM")
    fields: dict[str, Any] = msgspec.to_builtins(d)
    del fields["semantic_type"]
    assert contract.MhaKv(**fields) == d


@given(descriptors())
def test_it_cannot_be_changed(d: AnyDescriptor) -> None:
    with pytest.raises(AttributeError):
        setattr(d, "descriptor_id", "other")  # noqa: B010  # a plain assignment is what type checkers refuse already
    changes: list[Callable[[], object]] = [
        lambda: d.dims.update(layers=2),
        lambda: d.dims.setdefault("x", 1),
        lambda: d.dims.__setitem__("x", 1),
        lambda: d.dims.__delitem__("x"),
        lambda: d.dims.pop("x"),
        d.dims.clear,
        d.dims.popitem,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="immutable"):
            change()


@given(descriptors())
def test_it_is_hashable_and_can_be_copied_between_processes(d: AnyDescriptor) -> None:
    assert {d: 1}[copy.deepcopy(d)] == 1
    assert pickle.loads(pickle.dumps(d)) == d  # noqa: S301  # our own bytes; multiprocessing does this to arguments


def test_engine_family_has_no_default() -> None:
    with pytest.raises(TypeError, match="engine_family"):
        mha("a", kv_heads=1, head_dim=8, dtype="float16")  # type: ignore[call-arg]  # the fault under test


@pytest.mark.parametrize("name", ["dims", "layout", "engine_family"])
def test_the_base_has_the_fields_of_every_kind(name: str) -> None:
    assert name in contract.Descriptor.__struct_fields__
