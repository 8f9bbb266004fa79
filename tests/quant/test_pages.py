"""Quantised tensors of whole pages: the scales lie where the descriptor says, and each number keeps its bound."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nexuskv.contract import Descriptor, Role, dsa, mha, mla, nsa, vision
from nexuskv.errors import LocalError
from nexuskv.quant import decode, encode
from tests.contract.strategies import descriptors
from tests.quant.arrays import normal

INT8 = "int8_per_token_head_f32_scale_v1"
STORED = {
    INT8: ("int8", 0.01),
    "int4": ("int4", 0.15),
    "fp8_e4m3": ("float8_e4m3fn", 0.08),
    "fp8_e5m2": ("float8_e5m2", 0.15),
}


def blank(descriptor: Descriptor) -> dict[str, NDArray[Any]]:
    """The tensors of a page, as a daemon's slot would hold them."""
    memory = np.zeros(descriptor.page_bytes, np.uint8)
    return {place.name: place.view(memory) for place in descriptor.page_layout.tensors}


def quantised(descriptor: Descriptor) -> list[str]:
    owners = {name.removesuffix("_scale") for name in descriptor.quantization.scale_tensors}
    return [spec.name for spec in descriptor.tensor_specs if spec.name in owners]


def shape_of(descriptor: Descriptor, name: str) -> tuple[int, ...]:
    (spec,) = (spec for spec in descriptor.tensor_specs if spec.name == name)
    return tuple(descriptor.sizes[axis] for axis in spec.shape)


@given(descriptors().filter(lambda d: bool(d.quantization.scale_tensors)), st.integers(0, 9))
def test_every_quantised_tensor_of_every_kind_comes_back(d: Descriptor, seed: int) -> None:
    page = blank(d)
    _, error = STORED[d.quantization.scheme]
    for name in quantised(d):
        x = normal(shape_of(d, name), seed)
        encode(d, name, x, page)
        back = decode(d, name, page)
        assert back.shape == x.shape
        assert np.abs(back - x).max() <= error * np.abs(x).max()


@pytest.mark.parametrize("scheme", STORED)
def test_each_scale_belongs_to_its_numbers(scheme: str) -> None:
    """One token and head, or under fp8 one head, is a thousand times larger than the others: only its scale is."""
    d = mha(
        "a", layers=2, kv_heads=4, head_dim=8, dtype=STORED[scheme][0], quantization=scheme, engine_family="VLLM",
        arrangement="interleaved",
    )  # fmt: skip
    x = np.ones((2, 16, 4, 8), np.float32)
    x[1, 3, 2] = 1000
    page = blank(d)
    encode(d, "key", x, page)
    large = np.argwhere(page["key_scale"] > page["key_scale"].min())
    assert large.tolist() == ([[1, 2]] if scheme.startswith("fp8") else [[1, 3, 2]])
    assert decode(d, "key", page)[1, 3, 2] == pytest.approx(1000, rel=0.01)
    assert not page["value"].view(np.uint8).any()


def test_latents_have_a_scale_for_every_128_numbers() -> None:
    d = mla("a", layers=2, dtype="float8_e4m3fn", quantization="fp8_e4m3", engine_family="VLLM")
    x = np.ones((2, 16, 512), np.float32)
    x[1, 5, 128:256] = 7
    page = blank(d)
    encode(d, "latent", x, page)
    assert np.argwhere(page["latent_scale"] != page["latent_scale"][0, 0, 0]).tolist() == [[1, 5, 1]]
    assert (decode(d, "latent", page) == x).all()


@pytest.mark.parametrize(
    ("descriptor", "shapes"),
    [
        (
            dsa("a", top_k=4, block_tokens=2, kv_heads=2, head_dim=8, index_dim=4, dtype="float8_e5m2",
                quantization="fp8_e5m2", engine_family="VLLM"),
            {"blocks": (4, 2), "indexer_k": (8,)},
        ),
        (
            nsa("a", page_tokens=8, block_tokens=4, kv_heads=2, head_dim=8, dtype="int4", quantization="int4",
                engine_family="VLLM"),
            {"summary": (2, 2), "selected": (2, 4, 2)},
        ),
        (
            vision("a", frames=2, grid_height=3, grid_width=4, key_dim=8, dtype="int8", quantization=INT8,
                   engine_family="VLLM"),
            {"key": (2, 3, 4)},
        ),
    ],
    ids=["dsa", "nsa", "vision"],
)  # fmt: skip
def test_scales_of_the_sparse_and_visual_kinds(
    descriptor: Descriptor, shapes: dict[str, tuple[int, ...]]
) -> None:
    page = blank(descriptor)
    for name, shape in shapes.items():
        encode(descriptor, name, normal(shape_of(descriptor, name)), page)
        assert page[f"{name}_scale"].shape == shape
        assert page[f"{name}_scale"].all()


def test_the_output_may_be_narrow() -> None:
    d = mha("a", kv_heads=2, head_dim=8, dtype="int8", quantization=INT8, engine_family="VLLM")
    page = blank(d)
    encode(d, "key", normal((16, 2, 8)).astype(ml_dtypes.bfloat16), page)
    out = np.empty((16, 2, 8), ml_dtypes.bfloat16)
    assert decode(d, "key", page, out) is out
    assert (out == decode(d, "key", page).astype(ml_dtypes.bfloat16)).all()


def test_a_refused_tensor_leaves_the_page_as_it_was() -> None:
    d = mha("a", kv_heads=2, head_dim=8, dtype="int8", quantization=INT8, engine_family="VLLM")
    page, x = blank(d), normal((16, 2, 8))
    x[3, 1, 2] = np.inf
    with pytest.raises(LocalError, match="x holds inf in row 7, column 2"):
        encode(d, "key", x, page)
    assert not page["key"].any()
    with pytest.raises(LocalError, match=r"x has shape \[16, 2, 7\] where 'key' has \[16, 2, 8\]"):
        encode(d, "key", x[..., :7], page)


def test_only_quantised_tensors_are_encoded() -> None:
    d = mla("a", dtype="int8", quantization=INT8, engine_family="VLLM")
    with pytest.raises(LocalError, match="no quantised tensor 'rope_k'; there are: latent"):
        encode(d, "rope_k", normal((16, 64)), blank(d))
    plain = mha("a", kv_heads=2, head_dim=8, dtype="float16", engine_family="VLLM")
    with pytest.raises(LocalError, match="there are: none"):
        decode(plain, "key", blank(plain))
    assert Role.SCALE not in {spec.role for spec in plain.tensor_specs}
