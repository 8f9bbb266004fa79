"""The constructors of the sparse, recurrent, visual and branching kinds, against the shapes that were published."""

import pytest

from nexuskv.contract import (
    AllPages,
    Descriptor,
    LastCheckpoint,
    dsa,
    dsa_indexer,
    kda,
    mamba2,
    mha,
    nsa,
    tot,
    vision,
)

INT8 = "int8_per_token_head_f32_scale_v1"


def geometry(descriptor: Descriptor) -> dict[str, tuple[str, tuple[int, ...]]]:
    places = zip(descriptor.tensor_specs, descriptor.page_layout.tensors, strict=True)
    return {spec.name: (spec.dtype.value, place.shape) for spec, place in places}


def test_dsa_has_blocks_and_their_numbers() -> None:
    d = dsa(
        "d",
        layers=2,
        top_k=4,
        block_tokens=16,
        kv_heads=1,
        head_dim=576,
        dtype="bfloat16",
        engine_family="VLLM",
    )
    assert (d.semantic_type, d.granularity, d.reuse, d.page_tokens) == ("DSA_SPARSE", "BLOCK", AllPages(), 64)
    assert geometry(d) == {"blocks": ("bfloat16", (2, 4, 16, 1, 576)), "selector": ("int32", (2, 4))}
    assert d.page_bytes == 2 * (4 * 16 * 576 * 2 + 4 * 4)


def test_a_dsa_page_may_reach_further_than_its_blocks() -> None:
    d = dsa(
        "d", top_k=2, block_tokens=16, kv_heads=1, head_dim=8, index_dim=4, page_tokens=128,
        dtype="float16", engine_family="VLLM",
    )  # fmt: skip
    assert geometry(d)["blocks"] == ("float16", (2, 16, 1, 8))
    assert geometry(d)["indexer_k"] == ("float16", (128, 4))


@pytest.mark.parametrize(
    ("scheme", "dtype", "blocks", "indexer"),
    [
        ("fp8_e4m3", "float8_e4m3fn", (4, 2), (64,)),
        (INT8, "int8", (4, 16, 2), (64,)),
        ("int4", "int4", (4, 16, 2), (64,)),
    ],
)
def test_quantised_dsa(scheme: str, dtype: str, blocks: tuple[int, ...], indexer: tuple[int, ...]) -> None:
    d = dsa(
        "d", top_k=4, block_tokens=16, kv_heads=2, head_dim=8, index_dim=4, quantization=scheme,
        dtype=dtype, engine_family="VLLM",
    )  # fmt: skip
    assert geometry(d)["blocks_scale"] == ("float32", blocks)
    assert geometry(d)["indexer_k_scale"] == ("float32", indexer)


def test_the_indexer_alone_may_be_quantised() -> None:
    d = dsa(
        "d", top_k=4, block_tokens=1, kv_heads=1, head_dim=8, index_dim=4, dtype="bfloat16",
        index_dtype="float8_e4m3fn", quantization="fp8_e4m3", engine_family="VLLM",
    )  # fmt: skip
    assert list(geometry(d)) == ["blocks", "selector", "indexer_k", "indexer_k_scale"]


def test_an_indexer_with_a_pool_of_its_own() -> None:
    d = dsa_indexer(
        "i", layers=2, index_dim=128, dtype="float8_e4m3fn", quantization="fp8_e4m3", engine_family="VLLM"
    )
    assert d.semantic_type == "DSA_SPARSE"
    assert geometry(d) == {
        "indexer_k": ("float8_e4m3fn", (2, 64, 128)),
        "indexer_k_scale": ("float32", (2, 64)),
    }
    assert d.page_bytes == 2 * 64 * (128 + 4)


def test_kda_is_a_checkpoint() -> None:
    d = kda("k", layers=3, heads=2, key_dim=8, dtype="bfloat16", engine_family="VLLM")
    assert (d.semantic_type, d.granularity, d.reuse) == ("KDA_RECURRENT", "CHECKPOINT", LastCheckpoint())
    assert geometry(d) == {"state": ("float32", (3, 2, 8, 8)), "decay": ("float32", (3, 2, 8))}


def test_kda_with_a_short_convolution() -> None:
    d = kda("k", heads=2, key_dim=8, value_dim=4, conv_width=4, dtype="bfloat16", engine_family="VLLM")
    assert geometry(d) == {
        "state": ("float32", (2, 8, 4)),
        "decay": ("float32", (2, 8)),
        "conv": ("bfloat16", (2 * (8 + 8 + 4), 4)),
    }


def test_the_first_mamba_convolves_its_inner_channels_alone() -> None:
    d = mamba2(
        "m", heads=1, head_dim=64, state_size=16, conv_channels=64, dtype="bfloat16", engine_family="VLLM"
    )
    assert geometry(d) == {"state": ("bfloat16", (1, 16, 64)), "conv": ("bfloat16", (64, 4))}


def test_nsa_has_summaries_and_blocks() -> None:
    d = nsa(
        "n", page_tokens=128, block_tokens=64, summary_stride=16, kv_heads=4, head_dim=320,
        dtype="bfloat16", engine_family="SGLANG",
    )  # fmt: skip
    assert (d.semantic_type, d.granularity) == ("NSA_SPARSE", "BLOCK")
    assert geometry(d) == {"summary": ("bfloat16", (8, 4, 320)), "selected": ("bfloat16", (2, 64, 4, 320))}


def test_quantised_nsa() -> None:
    d = nsa(
        "n", page_tokens=8, block_tokens=4, kv_heads=2, head_dim=8, dtype="int8", quantization=INT8,
        engine_family="VLLM",
    )  # fmt: skip
    assert geometry(d)["summary_scale"] == ("float32", (2, 2))
    assert geometry(d)["selected_scale"] == ("float32", (2, 4, 2))


def test_vision_has_the_axes_of_time_height_and_width() -> None:
    d = vision(
        "v",
        layers=2,
        frames=3,
        grid_height=4,
        grid_width=5,
        key_dim=8,
        dtype="bfloat16",
        engine_family="VLLM",
    )
    assert (d.semantic_type, d.granularity, d.page_tokens) == ("VISION_KV", "SEGMENT", 60)
    assert geometry(d) == {"key": ("bfloat16", (2, 3, 4, 5, 8))}
    assert d.content_keyed
    assert not d.chained
    assert "PREFIX_REUSE" not in d.compatibility_flags


def test_vision_may_have_cross_attention_with_or_without_keys() -> None:
    d = vision(
        "v", grid_height=4, grid_width=5, kv_heads=2, head_dim=8, dtype="int8", quantization=INT8,
        engine_family="VLLM",
    )  # fmt: skip
    assert geometry(d) == {
        "cross_key": ("int8", (1, 4, 5, 2, 8)),
        "cross_value": ("int8", (1, 4, 5, 2, 8)),
        "cross_key_scale": ("float32", (1, 4, 5, 2)),
        "cross_value_scale": ("float32", (1, 4, 5, 2)),
    }


def test_a_branch_has_the_pages_of_attention_and_keys_of_its_own() -> None:
    branch = tot("b", layers=2, kv_heads=4, head_dim=8, dtype="float16", engine_family="VLLM")
    attention = mha("b", layers=2, kv_heads=4, head_dim=8, dtype="float16", engine_family="VLLM")
    assert branch.semantic_type == "TOT_BRANCH"
    assert branch.page_layout == attention.page_layout
    assert branch.digest != attention.digest
    assert "COW_BRANCH" in branch.compatibility_flags


@pytest.mark.parametrize(
    ("descriptor", "chained"),
    [
        (tot("b", kv_heads=4, head_dim=8, dtype="float16", engine_family="VLLM"), True),
        (kda("k", key_dim=8, dtype="bfloat16", engine_family="VLLM"), False),
    ],
)
def test_only_pages_of_attention_are_chained(descriptor: Descriptor, *, chained: bool) -> None:
    assert descriptor.chained == chained
