"""Canonical bytes and digests, pinned: a change here is a change of every stored key."""

from hashlib import blake2b
from typing import Any

import msgspec
import pytest
from hypothesis import given

from nexuskv.contract import (
    DIGEST_BYTES,
    PRESETS,
    AnyDescriptor,
    Arrangement,
    Layout,
    MhaKv,
    Window,
    decode,
    encode,
    from_json,
    mha,
    mla,
    to_json,
)
from tests.contract.strategies import descriptors

GEOMETRY: dict[str, Any] = {"layers": 2, "kv_heads": 4, "head_dim": 8, "dtype": "float16"}
SMALL = mha("a", **GEOMETRY, engine_family="CXX_FFI", compatibility_flags=["PREFIX_REUSE", "COW_BRANCH"])


@given(descriptors())
def test_both_forms_come_back_equal(d: AnyDescriptor) -> None:
    assert decode(encode(d)) == d
    assert from_json(to_json(d)) == d
    assert encode(decode(encode(d))) == encode(d)
    assert decode(encode(d)).digest == from_json(to_json(d)).digest == d.digest


@given(descriptors())
def test_any_msgpack_of_the_document_is_taken(d: AnyDescriptor) -> None:
    assert decode(msgspec.msgpack.encode(d)) == d


def test_golden_bytes() -> None:
    assert encode(SMALL) == GOLDEN_SMALL


def test_golden_json() -> None:
    assert to_json(SMALL).decode() == GOLDEN_JSON


@pytest.mark.parametrize("name", PRESETS)
def test_golden_digests_of_the_presets(name: str) -> None:
    assert PRESETS[name].digest.hex() == GOLDEN_DIGESTS[name]


def test_golden_digest_of_a_quantised_interleaved_window() -> None:
    d = mha(
        "b",
        kv_heads=4,
        head_dim=8,
        dtype="int8",
        engine_family="SGLANG",
        quantization="int8_per_token_head_f32_scale_v1",
        arrangement="interleaved",
        dimension_order="HND",
        reuse=Window(tokens=4096),
    )
    assert d.digest.hex() == GOLDEN_QUANTISED


def test_golden_digest_of_fp8_latents() -> None:
    d = mla("c", layers=61, dtype="float8_e4m3fn", engine_family="VLLM", quantization="fp8_e4m3")
    assert d.digest.hex() == GOLDEN_LATENTS


def test_a_digest_is_32_bytes() -> None:
    assert len(SMALL.digest) == DIGEST_BYTES == 32


# What another language would write, from the description alone


def packed(value: Any) -> bytes:
    """Msgpack in its shortest form, for what a descriptor is made of."""
    if isinstance(value, str):
        data = value.encode()
        return (bytes([0xA0 | len(data)]) if len(data) < 32 else bytes([0xD9, len(data)])) + data
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(map(packed, value))
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: item[0].encode())
        return bytes([0x80 | len(value)]) + b"".join(packed(key) + packed(item) for key, item in items)
    if value < 128:
        return bytes([value])
    code, width = next((c, w) for c, w in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)) if value < 256**w)
    return bytes([code]) + int(value).to_bytes(width, "big")


def test_the_description_is_enough_to_reproduce_bytes_and_digest() -> None:
    shape = ["layers", "page_tokens", "kv_heads", "head_dim"]
    physical: dict[str, Any] = {
        "semantic_type": "MHA_KV",
        "tensor_specs": [
            {"name": "key", "role": "KEY", "dtype": "bfloat16", "shape": shape},
            {"name": "value", "role": "VALUE", "dtype": "bfloat16", "shape": shape},
        ],
        "dims": {"layers": 32, "kv_heads": 8, "head_dim": 128},
        "layout": {"page_tokens": 16, "stride_bytes": 65536},
    }
    rest = {
        "descriptor_id": "llama-3-8b-page16",
        "engine_family": "VLLM",
        "granularity": "PAGE",
        "compatibility_flags": ["EXACT_REUSE", "PREFIX_REUSE", "ZERO_COPY_RDMA"],
    }
    llama = PRESETS["llama-3-8b-page16"]
    assert encode(llama) == packed(physical | rest)
    hashed = b"nexuskv-descriptor-v1" + packed(physical)
    assert llama.digest == blake2b(hashed, digest_size=32).digest()


# What enters the digest


@pytest.mark.parametrize(
    "same",
    [
        mha("other-id", **GEOMETRY, engine_family="CXX_FFI"),
        mha("a", **GEOMETRY, engine_family="SGLANG"),
        mha("a", **GEOMETRY, engine_family="VLLM", granularity="BLOCK"),
        mha("a", **GEOMETRY, engine_family="VLLM", compatibility_flags=[]),
    ],
)
def test_equal_physical_contracts_have_one_digest(same: AnyDescriptor) -> None:
    assert same.digest == SMALL.digest
    assert same != SMALL


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 3},
        {"layers": None},
        {"kv_heads": 8, "head_dim": 4},
        {"dtype": "bfloat16"},
        {"page_tokens": 32},
        {"arrangement": "interleaved"},
        {"dimension_order": "HND"},
        {"reuse": Window(tokens=4096)},
        {"dtype": "float8_e5m2", "quantization": "fp8_e5m2"},
    ],
)
def test_another_physical_contract_has_another_digest(change: dict[str, Any]) -> None:
    assert mha("a", engine_family="VLLM", **(GEOMETRY | change)).digest != SMALL.digest


def test_a_declared_stride_changes_nothing() -> None:
    layout = Layout(page_tokens=16, arrangement=Arrangement.SEPARATE, stride_bytes=2 * 16 * 4 * 8 * 2)
    declared = msgspec.structs.replace(SMALL, layout=layout)
    assert declared == SMALL
    assert encode(declared) == encode(SMALL)


def test_a_later_field_with_a_default_changes_no_digest() -> None:
    later = msgspec.defstruct(
        "LaterMha",
        [
            ("colour", str, "none"),
            ("notes", list[str], msgspec.field(default_factory=list)),
        ],
        bases=(MhaKv,),
        tag="MHA_KV",
        frozen=True,
        kw_only=True,
    )
    fields = {name: getattr(SMALL, name) for name in SMALL.__struct_fields__}
    unused, used = later(**fields), later(**fields, colour="red")
    assert isinstance(unused, MhaKv)
    assert isinstance(used, MhaKv)
    assert (unused.digest, encode(unused)) == (SMALL.digest, encode(SMALL))
    assert used.digest != SMALL.digest
    assert decode(encode(unused)) == SMALL


GOLDEN_SMALL = (
    b"\x88\xb3compatibility_flags\x92\xaaCOW_BRANCH\xacPREFIX"
    b"_REUSE\xaddescriptor_id\xa1a\xa4dims\x83\xa8head_dim\x08\xa8k"
    b"v_heads\x04\xa6layers\x02\xadengine_family\xa7CXX_FFI\xabg"
    b"ranularity\xa4PAGE\xa6layout\x82\xabpage_tokens\x10\xacstr"
    b"ide_bytes\xcd\x08\x00\xadsemantic_type\xa6MHA_KV\xactensor"
    b"_specs\x92\x84\xa5dtype\xa7float16\xa4name\xa3key\xa4role\xa3KEY"
    b"\xa5shape\x94\xa6layers\xabpage_tokens\xa8kv_heads\xa8head"
    b"_dim\x84\xa5dtype\xa7float16\xa4name\xa5value\xa4role\xa5VALU"
    b"E\xa5shape\x94\xa6layers\xabpage_tokens\xa8kv_heads\xa8hea"
    b"d_dim"
)
GOLDEN_JSON = (
    '{"semantic_type":"MHA_KV","descriptor_id":"a","engine_family":"CXX_FFI","granularity":"PAGE","t'
    'ensor_specs":[{"name":"key","role":"KEY","dtype":"float16","shape":["layers","page_tokens","kv_'
    'heads","head_dim"]},{"name":"value","role":"VALUE","dtype":"float16","shape":["layers","page_to'
    'kens","kv_heads","head_dim"]}],"dims":{"head_dim":8,"kv_heads":4,"layers":2},"layout":{"page_to'
    'kens":16,"arrangement":"separate","dimension_order":"NHD","stride_bytes":2048},"quantization":{'
    '"scheme":"none","scale_tensors":[]},"compatibility_flags":["COW_BRANCH","PREFIX_REUSE"],"reuse"'
    ':{"rule":"ALL_PAGES"}}'
)
GOLDEN_DIGESTS = {
    "llama-3-8b-page16": "2a5eacf988911975fbeb1f15a8cf95fe10feeacd5ac30efe58d7eda17ac1c839",
    "qwen2.5-7b-page16": "4de56e1a722e754cc4b2c3008c7f6ef4b91e0bab39293a219d880337d434c4c1",
    "deepseek-v3-mla-page16": "44a629c54a07ac7755a96004c07538cb8c937e9add0202a97633e70e59454f54",
    "llama-3-70b-page16": "36aa6b40341e1810d47ed21f14cd59ef3a9d14a66eb83634aa8130aeb63ccce0",
    "mistral-7b-v0.1-page16": "45d3dde9b8fdd01fb9255f8221adedaf4860507ff12459e26bab19964945e46e",
    "deepseek-v2-mla-page16": "11a35de1edec71454f46e9aba60bd820c24991836e693e1deb3cc4e294a5dfb4",
    "deepseek-v3.2-dsa-page64": "e8bc8da9d66bf9973df596a4a7b9857673562b07a7615e14813d18e9031fd929",
    "deepseek-v3.2-indexer-page64": "3b3987db9d15b827fab39cda0231c8b365780697b69bca4236a434a50b1f0e85",
    "kimi-linear-48b-kda-checkpoint256": "80469e500075e79c58206c64abbc95170fadef685ab21534d0a62b795f613383",
    "kimi-linear-48b-mla-page16": "549b159faa39e1481cd81c523605a6496fd1fc8197fc36b816bfd5f6e34c7c50",
    "jamba-v0.1-attention-page16": "c4a03b8dc817427f4a2d5e777caba8de6ecd0a8c649f4dc823a17b82614df94b",
    "jamba-v0.1-mamba-checkpoint256": "e9582d876f6a612e7a7f3c73882324b11f347b223d28ecd447384df2b5cdf5ee",
    "nsa-27b-page64": "b3cd91de0d50ca9c09830eb166011ee332264317e038d115625ae0b080008ae5",
    "qwen2-vl-7b-image448": "6de69a4600e20300ccbac88ea3818e8be1b39689c1a8428dd15b3b21f6f6a47d",
    "llama-3-8b-tot-page16": "e9ff29b02d847a99a05141c4b2586c4c7e2d83081054da2620d75ef82a223d97",
    "mamba2-2.7b-checkpoint256": "af4b32b54744323af2f95cbcf6ab8fa48b899e215b2ce9cc5280da0a391b6f89",
}
GOLDEN_QUANTISED = "a10082035748daf5725c5a4f2264a0e2fb484dd7e4d922bd30352e192ecd4039"
GOLDEN_LATENTS = "f934f71cbee2c9b8f059ce862e4075854b89ddf0aeb1260b9fbfb1d1c3e01c0f"
