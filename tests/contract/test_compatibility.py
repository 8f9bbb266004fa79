"""Whether one engine can use what another stored, and every reason why not."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.contract import (
    AllPages,
    AnyDescriptor,
    Aspect,
    Verdict,
    Window,
    compatible,
    dsa,
    kda,
    mha,
    mla,
    nsa,
    tot,
    vision,
)
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


def like_base(**change: Any) -> AnyDescriptor:
    """The base with other arguments."""
    return mha("b", **{**GEOMETRY, **change})


@given(descriptors())
def test_a_contract_is_exactly_compatible_with_itself(d: AnyDescriptor) -> None:
    assert compatible(d, d).verdict is Verdict.EXACT


def few() -> st.SearchStrategy[AnyDescriptor]:
    """Descriptors of one kind that differ in little, so that two of them are often alike."""
    stored = [("none", "float16"), ("fp8_e4m3", "float8_e4m3fn"), (INT8, "int8")]
    return st.builds(
        lambda stored, **rest: mla(
            "a", quantization=stored[0], dtype=stored[1], engine_family="VLLM", **rest
        ),
        st.sampled_from(stored),
        layers=st.sampled_from([None, 1, 2]),
        latent_dim=st.sampled_from([128, 256]),
        rope_dim=st.just(8),
        page_tokens=st.sampled_from([8, 16]),
        arrangement=st.sampled_from(["separate", "interleaved"]),
    )


@given(st.tuples(descriptors(), descriptors()) | st.tuples(few(), few()))
def test_exact_is_one_digest_and_everything_else_has_its_reasons(
    pair: tuple[AnyDescriptor, AnyDescriptor],
) -> None:
    a, b = pair
    found = compatible(a, b)
    assert (found.verdict is Verdict.EXACT) == (a.digest == b.digest)
    assert bool(found.reasons) == (a.digest != b.digest)
    convertible = all(reason.convertible for reason in found.reasons)
    assert (found.verdict is Verdict.INCOMPATIBLE) == (not convertible)


@pytest.mark.parametrize(
    "change", [{"engine_family": "SGLANG"}, {"granularity": "BLOCK"}, {"compatibility_flags": ["COW_BRANCH"]}]
)
def test_what_changes_no_byte_is_no_reason(change: dict[str, Any]) -> None:
    found = compatible(BASE, like_base(**change))
    assert (found.verdict, found.reasons) == (Verdict.EXACT, ())


def test_another_model_revision_is_incompatible() -> None:
    found = compatible(BASE, BASE, producer_model="llama@1", consumer_model="llama@2")
    assert found.verdict is Verdict.INCOMPATIBLE
    (reason,) = found.reasons
    assert (reason.aspect, reason.producer, reason.consumer) == (Aspect.MODEL_REVISION, "llama@1", "llama@2")


@pytest.mark.parametrize(
    ("change", "verdict", "named"),
    [
        ({"dtype": "bfloat16"}, "convertible", {"KEY.dtype", "VALUE.dtype"}),
        ({"dtype": "int8", "quantization": INT8}, "convertible", {"quantization.scheme"}),
        ({"dimension_order": "HND"}, "convertible", {"layout.dimension_order"}),
        ({"arrangement": "interleaved"}, "convertible", {"layout.arrangement"}),
        ({"page_tokens": 32}, "convertible", {"layout.page_tokens"}),
        ({"reuse": Window(tokens=64)}, "convertible", {"reuse"}),
        ({"layers": 3}, "incompatible", {"dims.layers"}),
        ({"layers": None}, "incompatible", {"dims.layers"}),
        ({"kv_heads": 8}, "incompatible", {"dims.kv_heads"}),
        (
            {"head_dim": 16, "dtype": "float32", "page_tokens": 32, "arrangement": "interleaved"},
            "incompatible",
            {"dims.head_dim", "KEY.dtype", "VALUE.dtype", "layout.page_tokens", "layout.arrangement"},
        ),
    ],
)
def test_every_reason_is_named(change: dict[str, Any], verdict: str, named: set[str]) -> None:
    found = compatible(BASE, like_base(**change))
    assert found.verdict == verdict
    assert {reason.field for reason in found.reasons} == named


def test_a_reason_says_both_sides() -> None:
    (reason, _) = compatible(BASE, like_base(dtype="float32")).reasons
    assert (reason.aspect, reason.producer, reason.consumer) == (Aspect.DTYPE, "float16", "float32")
    assert "convert each number" in reason.sentence


def test_another_kind_is_incompatible_and_that_alone_is_said() -> None:
    found = compatible(BASE, tot("b", **GEOMETRY))
    assert [reason.field for reason in found.reasons] == ["semantic_type"]
    assert found.verdict is Verdict.INCOMPATIBLE


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(4096, 1024, "convertible"), (1024, 4096, "incompatible"), (64, None, "incompatible")],
)
def test_a_window_serves_a_smaller_one_only(ours: int, theirs: int | None, verdict: str) -> None:
    wanted = AllPages() if theirs is None else Window(tokens=theirs)
    found = compatible(mha("a", **GEOMETRY, reuse=Window(tokens=ours)), mha("b", **GEOMETRY, reuse=wanted))
    assert found.verdict == verdict


@pytest.mark.parametrize(("ours", "theirs", "verdict"), [(64, 256, "convertible"), (256, 64, "incompatible")])
def test_checkpoints_serve_coarser_boundaries_only(ours: int, theirs: int, verdict: str) -> None:
    def every(tokens: int) -> AnyDescriptor:
        return kda("k", key_dim=8, dtype="bfloat16", page_tokens=tokens, engine_family="VLLM")

    assert compatible(every(ours), every(theirs)).verdict == verdict


def test_a_consumer_without_the_indexer_leaves_it_out_and_one_with_it_cannot_do_without() -> None:
    sparse: dict[str, Any] = {
        "top_k": 4, "block_tokens": 4, "kv_heads": 1, "head_dim": 8, "dtype": "float16", "engine_family": "VLLM",
    }  # fmt: skip
    plain, indexed = dsa("a", **sparse), dsa("b", **sparse, index_dim=8)
    assert compatible(indexed, plain).verdict is Verdict.CONVERTIBLE
    found = compatible(plain, indexed)
    assert found.verdict is Verdict.INCOMPATIBLE
    assert {reason.aspect for reason in found.reasons} >= {Aspect.TENSORS}
    more: dict[str, Any] = {**sparse, "top_k": 8}
    longer = dsa("c", **more)
    assert [reason.field for reason in compatible(plain, longer).reasons] == ["layout.page_tokens"]


def test_longer_pages_of_blocks_are_cut_anew() -> None:
    def pages_of(tokens: int) -> AnyDescriptor:
        return nsa(
            "n",
            page_tokens=tokens,
            block_tokens=4,
            kv_heads=1,
            head_dim=8,
            dtype="float16",
            engine_family="VLLM",
        )

    assert compatible(pages_of(8), pages_of(16)).verdict is Verdict.CONVERTIBLE


def test_images_of_another_size_are_other_images() -> None:
    def grid(width: int) -> AnyDescriptor:
        return vision("v", grid_height=2, grid_width=width, key_dim=8, dtype="float16", engine_family="VLLM")

    assert compatible(grid(2), grid(4)).verdict is Verdict.INCOMPATIBLE


def test_scales_that_are_shared_otherwise_are_encoded_anew() -> None:
    fine = like_base(dtype="float8_e4m3fn", quantization="fp8_e4m3")
    coarse_specs = tuple(
        msgspec.structs.replace(spec, shape=("layers",)) if spec.role == "SCALE" else spec
        for spec in fine.tensor_specs
    )
    layout = msgspec.structs.replace(fine.layout, stride_bytes=None)
    coarse = msgspec.structs.replace(fine, tensor_specs=coarse_specs, layout=layout)
    found = compatible(fine, coarse)
    assert [reason.field for reason in found.reasons] == ["quantization.scale_tensors"]
    assert found.verdict is Verdict.CONVERTIBLE


def test_scales_of_larger_tiles_are_encoded_anew() -> None:
    fine = mla("f", dtype="float8_e4m3fn", quantization="fp8_e4m3", engine_family="VLLM")
    layout = msgspec.structs.replace(fine.layout, stride_bytes=None)
    coarse = msgspec.structs.replace(fine, dims={**fine.dims, "latent_tiles": 2}, layout=layout)
    found = compatible(fine, coarse)
    assert found.verdict == "convertible"
    (reason,) = found.reasons
    assert reason.field == "quantization.scale_tensors"
    assert ("latent_tiles=4" in reason.producer, "latent_tiles=2" in reason.consumer) == (True, True)


def test_latents_in_fp8_become_bfloat16() -> None:
    fp8 = mla("a", layers=2, dtype="float8_e4m3fn", quantization="fp8_e4m3", engine_family="VLLM")
    plain = mla("b", layers=2, dtype="bfloat16", engine_family="SGLANG")
    for pair in ((fp8, plain), (plain, fp8)):
        found = compatible(*pair)
        assert found.verdict is Verdict.CONVERTIBLE
        assert [reason.aspect for reason in found.reasons] == [Aspect.QUANTISATION]


def test_a_report_can_be_written_as_json() -> None:
    found = compatible(BASE, like_base(layers=3))
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
