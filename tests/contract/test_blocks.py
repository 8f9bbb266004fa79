"""Blocks as pages of their own: their bytes are those of the page that they were cut from, and nothing else's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nexuskv
from nexuskv import contract
from nexuskv.contract import Descriptor
from nexuskv.contract.blocks import block_key, blocks_of, check_layer, cut
from nexuskv.errors import BadRequest

SCHEMES = {
    "none": "float16",
    "fp8_e4m3": "float8_e4m3fn",
    "int8_per_token_head_f32_scale_v1": "int8",
    "int4": "int4",
}
SHAPES: list[dict[str, Any]] = [{}, {"layers": 3}, {"layers": 3, "arrangement": "interleaved"}]


def dsa(scheme: str = "none", **shape: Any) -> Descriptor:
    indexer: dict[str, Any] = {} if scheme == "int4" else {"index_dim": 4}
    return nexuskv.dsa(
        "dsa", top_k=5, block_tokens=3, kv_heads=1, head_dim=6, dtype=SCHEMES[scheme], quantization=scheme,
        engine_family="VLLM", **indexer, **shape,
    )  # fmt: skip


def nsa(scheme: str = "none", **shape: Any) -> Descriptor:
    return nexuskv.nsa(
        "nsa", page_tokens=20, block_tokens=4, kv_heads=2, head_dim=6, dtype=SCHEMES[scheme],
        quantization=scheme, engine_family="VLLM", **shape,
    )  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=["one layer", "layers", "interleaved"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", [dsa, nsa])
def test_every_block_is_cut_whole(
    kind: Callable[..., Descriptor], scheme: str, shape: dict[str, Any]
) -> None:
    d = kind(scheme, **shape)
    blocks = blocks_of(d)
    page = np.random.default_rng(1).integers(0, 256, d.page_bytes, dtype=np.uint8)
    whole = {tensor.name: tensor.view(page) for tensor in d.page_layout.tensors}
    for layer in range(shape.get("layers", 1)):
        for place in range(blocks.top_k):
            block = cut(page.data, blocks.extents(layer, place))
            assert block.nbytes == blocks.descriptor.page_bytes
            for tensor in blocks.descriptor.page_layout.tensors:
                index = (layer, place) if "layers" in shape else (place,)
                assert tensor.view(block)[0].tobytes() == whole[tensor.name][index].tobytes()


@pytest.mark.parametrize("kind", [dsa, nsa])
def test_the_descriptor_of_a_block_is_one_like_any_other(kind: Callable[..., Descriptor]) -> None:
    d = kind("fp8_e4m3", layers=3)
    lone = blocks_of(d).descriptor
    assert contract.decode(contract.encode(lone)) == contract.from_json(contract.to_json(lone)) == lone
    assert d.chained
    assert not lone.chained
    assert d.digest.hex() in lone.descriptor_id
    with pytest.raises(BadRequest, match="no blocks"):
        blocks_of(lone)


def test_the_presets_of_sparse_attention_have_blocks() -> None:
    dsa_blocks = blocks_of(
        contract.PRESETS["deepseek-v3.2-dsa-page64"]
    )  # whose indexer keys alone are quantised
    nsa_blocks = blocks_of(contract.PRESETS["nsa-27b-page64"])
    assert (dsa_blocks.descriptor.page_bytes, dsa_blocks.top_k, dsa_blocks.scale) == (576 * 2, 64, None)
    assert nsa_blocks.descriptor.page_bytes * nsa_blocks.top_k == 64 * 4 * (192 + 128) * 2


def test_keys_keep_pages_layers_and_numbers_apart() -> None:
    pages = [bytes(32), bytes(31) + b"\1"]
    found = {
        block_key(page, layer, number) for page in pages for layer in (0, 1) for number in (-1, 0, 1, 256)
    }
    assert len(found) == 16
    assert block_key(bytes(32), 2, 7).hex()[:16] == "d9a46b94e10ac4ae"


def test_a_selector_says_where_a_block_stands() -> None:
    d = dsa(layers=2)
    page = np.zeros(d.page_bytes, np.uint8)
    selector = next(tensor for tensor in d.page_layout.tensors if tensor.name == "selector").view(page)
    selector[:] = [[40, 7, -3, 9, 7], [1, 2, 3, 4, 40]]
    place, view = blocks_of(d).place, page.data
    assert [place(view, 0, number) for number in (40, 7, -3, 5)] == [0, 1, 2, None]
    assert [place(view, 1, number) for number in (40, 7)] == [4, None]


def test_without_a_selector_the_place_is_the_number() -> None:
    page = memoryview(bytes(nsa().page_bytes))
    assert [blocks_of(nsa()).place(page, 0, number) for number in (-1, 0, 4, 5)] == [None, 0, 4, None]


def test_what_has_no_blocks() -> None:
    plain = nexuskv.mha("m", layers=1, kv_heads=1, head_dim=2, dtype="float16", engine_family="VLLM")
    indexer = nexuskv.dsa_indexer("i", index_dim=8, dtype="float16", engine_family="VLLM")
    for each in (plain, indexer):
        with pytest.raises(BadRequest, match="read their tensors by name"):
            blocks_of(each)
    for layer in (None, -1, 3):
        with pytest.raises(BadRequest, match="name one from 0 to 2"):
            check_layer(dsa(layers=3), layer)
    with pytest.raises(BadRequest, match="leave `layer` out"):
        check_layer(dsa(), 0)
