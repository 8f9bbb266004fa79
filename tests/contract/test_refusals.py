"""Every fault of a descriptor is refused with the field to mend, built in code or decoded."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.contract import (
    MAX_PAGE_BYTES,
    AnyDescriptor,
    DsaSparse,
    KdaRecurrent,
    MhaKv,
    MlaLatent,
    NsaSparse,
    SsmMamba2,
    TotBranch,
    VisionKv,
    Window,
    check_page_limit,
    decode,
    encode,
    from_json,
    mamba2,
    mha,
    mla,
    nsa,
    to_json,
)
from nexuskv.errors import DescriptorError, LocalError
from tests.contract.faults import DECODED_ONLY, FAULTS, MAMBA, MHA, MHA_FP8, MHA_INT8, MLA, Case, Document

KINDS: dict[str, type[AnyDescriptor]] = {
    "DSA_SPARSE": DsaSparse,
    "KDA_RECURRENT": KdaRecurrent,
    "NSA_SPARSE": NsaSparse,
    "TOT_BRANCH": TotBranch,
    "VISION_KV": VisionKv,
    "MHA_KV": MhaKv,
    "MLA_LATENT": MlaLatent,
    "SSM_MAMBA2": SsmMamba2,
}


def construct(document: Document) -> AnyDescriptor:
    fields = dict(document)
    return KINDS[fields.pop("semantic_type")](**fields)


def by_msgpack(document: Document) -> AnyDescriptor:
    return decode(msgspec.msgpack.encode(document))


def by_json(document: Document) -> AnyDescriptor:
    return from_json(msgspec.json.encode(document))


@pytest.mark.parametrize("build", [construct, by_msgpack, by_json])
@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS)
def test_a_fault_names_its_field(case: Case, build: Callable[[Document], AnyDescriptor]) -> None:
    document, field, sentence = case
    with pytest.raises(DescriptorError) as caught:
        build(document)
    assert caught.value.field == field
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(f"{field}: ")


@pytest.mark.parametrize("build", [by_msgpack, by_json])
@pytest.mark.parametrize("case", DECODED_ONLY.values(), ids=DECODED_ONLY)
def test_a_fault_of_the_form_names_its_field(case: Case, build: Callable[[Document], AnyDescriptor]) -> None:
    document, field, sentence = case
    with pytest.raises(DescriptorError) as caught:
        build(document)
    assert caught.value.field == field
    assert sentence in str(caught.value)


@pytest.mark.parametrize("build", [construct, by_msgpack, by_json])
@pytest.mark.parametrize("descriptor", [MHA, MHA_INT8, MHA_FP8, MLA, MAMBA])
def test_the_documents_without_a_fault_are_taken(
    descriptor: AnyDescriptor, build: Callable[[Document], AnyDescriptor]
) -> None:
    assert build(msgspec.json.decode(to_json(descriptor))) == descriptor


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"dtype": "float64"}, "dtype"),
        ({"engine_family": "vllm"}, "engine_family"),
        ({"granularity": "page"}, "granularity"),
        ({"arrangement": "mixed"}, "layout.arrangement"),
        ({"dimension_order": "DHN"}, "layout.dimension_order"),
        ({"quantization": "fp4"}, "quantization.scheme"),
        ({"compatibility_flags": ["FAST"]}, "compatibility_flags"),
        ({"page_tokens": 0}, "page_tokens"),
        ({"page_tokens": 16.0}, "page_tokens"),
        ({"kv_heads": 0}, "dims.kv_heads"),
        ({"layers": 0}, "dims.layers"),
    ],
)
def test_a_constructor_names_the_argument_or_field(arguments: dict[str, Any], field: str) -> None:
    good: dict[str, Any] = {"kv_heads": 4, "head_dim": 8, "dtype": "float16", "engine_family": "VLLM"}
    with pytest.raises(DescriptorError) as caught:
        mha("a", **(good | arguments))
    assert caught.value.field == field


def test_fp8_latents_come_in_whole_tiles() -> None:
    with pytest.raises(DescriptorError, match=r"dims\.latent_dim: 500 is no multiple of 128"):
        mla("a", latent_dim=500, dtype="float8_e4m3fn", engine_family="VLLM", quantization="fp8_e4m3")


def test_a_state_space_has_groups() -> None:
    with pytest.raises(DescriptorError, match="groups: 0 is out of bounds"):
        mamba2("a", heads=2, head_dim=4, state_size=8, dtype="float16", engine_family="VLLM", groups=0)


def test_blocks_and_summaries_divide_a_page() -> None:
    def build(**change: Any) -> object:
        good: dict[str, Any] = {"page_tokens": 64, "block_tokens": 16, "kv_heads": 1, "head_dim": 8}
        return nsa("a", dtype="float16", engine_family="VLLM", **{**good, **change})

    assert build()
    with pytest.raises(DescriptorError, match="block_tokens: 24 does not divide the 64 tokens"):
        build(block_tokens=24, summary_stride=16)
    with pytest.raises(DescriptorError, match="summary_stride: 24 does not divide the 64 tokens"):
        build(summary_stride=24)
    with pytest.raises(DescriptorError, match="block_tokens: 0 is out of bounds"):
        build(block_tokens=0, summary_stride=16)


@pytest.mark.parametrize("tokens", [0, -1, 2**63, 1.5, "4096"])
def test_a_window_is_a_positive_number(tokens: Any) -> None:
    with pytest.raises(DescriptorError, match="tokens"):
        Window(tokens=tokens)


def test_a_daemon_may_allow_less() -> None:
    assert decode(encode(MHA), max_page_bytes=MHA.page_bytes) == MHA
    for refuse in (
        lambda: decode(encode(MHA), max_page_bytes=MHA.page_bytes - 1),
        lambda: from_json(to_json(MHA), max_page_bytes=MHA.page_bytes - 1),
        lambda: check_page_limit(MHA, MHA.page_bytes - 1),
    ):
        with pytest.raises(DescriptorError, match=r"page_bytes: a page has 4096 bytes and 4095 are allowed"):
            refuse()


def test_the_largest_page_is_taken() -> None:
    d = mha("a", kv_heads=1, head_dim=1 << 14, page_tokens=1 << 14, dtype="float16", engine_family="VLLM")
    assert d.page_bytes == MAX_PAGE_BYTES


def test_it_is_the_callers_fault() -> None:
    assert issubclass(DescriptorError, LocalError)
    assert DescriptorError.code == "bad_descriptor"


@pytest.mark.parametrize("data", [b"", b"\xc1", b"[1]", b"\x93\x01\x02\x03", b"{", b"nil", b"\xa2\xff\xfe"])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(DescriptorError):
        decode(data)
    with pytest.raises(DescriptorError):
        from_json(data)


def test_bytes_after_the_document_are_refused() -> None:
    with pytest.raises(DescriptorError, match="trailing"):
        decode(encode(MHA) + b"\xc0")
    with pytest.raises(DescriptorError, match="trailing"):
        from_json(to_json(MHA) + b" x")


@given(st.data())
def test_damaged_bytes_are_a_descriptor_or_a_refusal(data: st.DataObject) -> None:
    damaged = bytearray(encode(data.draw(st.sampled_from([MHA, MHA_INT8, MLA, MAMBA]))))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        survivor = decode(damaged)
    except DescriptorError:
        return
    assert decode(encode(survivor)) == survivor
