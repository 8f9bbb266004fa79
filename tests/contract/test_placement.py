"""Where tensors lie: offsets and strides that numpy takes, for both arrangements and dimension orders."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.contract import AnyDescriptor, TensorPlace, mamba2, mha, mla, slot_bytes
from tests.contract.strategies import descriptors


def places(descriptor: AnyDescriptor) -> dict[str, TensorPlace]:
    return {place.name: place for place in descriptor.page_layout.tensors}


def stored_bytes(place: TensorPlace, page: np.ndarray) -> np.ndarray:
    """The tensor's bytes in the page, one more axis for the bytes of an item."""
    item = place.dtype.itemsize
    return np.ndarray((*place.shape, item), np.uint8, page, place.offset, (*place.strides, 1))


def test_separate_keys_and_values() -> None:
    d = mha("a", layers=4, kv_heads=2, head_dim=8, page_tokens=16, dtype="float16", engine_family="VLLM")
    key, value = d.page_layout.tensors
    assert (key.offset, key.nbytes, key.strides) == (0, 2048, (512, 32, 16, 2))
    assert (value.offset, value.nbytes, value.strides) == (2048, 2048, (512, 32, 16, 2))
    assert d.page_bytes == 4096


def test_interleaved_keys_and_values_alternate_by_layer() -> None:
    d = mha(
        "a",
        layers=4,
        kv_heads=2,
        head_dim=8,
        page_tokens=16,
        dtype="float16",
        engine_family="VLLM",
        arrangement="interleaved",
    )
    key, value = d.page_layout.tensors
    assert (key.offset, key.strides) == (0, (1024, 32, 16, 2))
    assert (value.offset, value.strides) == (512, (1024, 32, 16, 2))
    page = np.arange(d.page_bytes // 2, dtype=np.uint16)
    both = page.reshape(
        4, 2, 16, 2, 8
    )  # layers, K and V, tokens, heads, head_dim: a page as FlashInfer has it
    assert (key.view(page.view(np.uint8)).view(np.uint16) == both[:, 0]).all()
    assert (value.view(page.view(np.uint8)).view(np.uint16) == both[:, 1]).all()


def test_hnd_keeps_a_heads_tokens_together() -> None:
    nhd, hnd = (
        mha("a", kv_heads=2, head_dim=8, dtype="float16", engine_family="VLLM", dimension_order=order)
        for order in ("NHD", "HND")
    )
    page = np.arange(hnd.page_bytes, dtype=np.int64).astype(np.uint8)
    key = hnd.page_layout.tensors[0]
    assert key.shape == (2, 16, 8)
    assert key.strides == (256, 16, 2)
    assert (key.view(page)[1].tobytes()) == page[256:512].tobytes()
    assert nhd.page_bytes == hnd.page_bytes
    assert nhd.digest != hnd.digest


def test_interleaved_latents_are_flashmlas_656_bytes() -> None:
    d = mla(
        "a",
        layers=61,
        dtype="float8_e4m3fn",
        engine_family="VLLM",
        quantization="fp8_e4m3",
        arrangement="interleaved",
    )
    token = {name: (place.offset, place.strides[1]) for name, place in places(d).items()}
    assert token == {"latent": (0, 656), "latent_scale": (512, 656), "rope_k": (528, 656)}
    assert d.stride_bytes == 16 * 656
    assert d.page_bytes == 61 * 16 * 656


def test_interleaved_unquantised_latents_are_576_elements_a_token() -> None:
    d = mla("a", dtype="bfloat16", engine_family="VLLM", arrangement="interleaved")
    page = np.zeros((16, 576), np.uint16)
    place = places(d)["rope_k"]
    place.view(page.view(np.uint8)).view(np.uint16)[...] = 1
    assert (page[:, :512] == 0).all()
    assert (page[:, 512:] == 1).all()


def test_a_unit_is_aligned_as_a_c_struct_is() -> None:
    d = mamba2(
        "a",
        layers=2,
        heads=1,
        head_dim=1,
        state_size=1,
        conv_width=1,
        dtype="int8",
        state_dtype="float32",
        engine_family="VLLM",
        arrangement="interleaved",
    )
    assert [(place.offset, place.strides[0]) for place in d.page_layout.tensors] == [(0, 8), (4, 8)]
    assert d.page_bytes == 16
    assert d.stride_bytes == 8


def test_int4_is_packed_two_a_byte() -> None:
    d = mha("a", kv_heads=2, head_dim=8, dtype="int4", engine_family="VLLM", quantization="int4")
    key = places(d)["key"]
    assert (key.dtype, key.shape, key.nbytes) == (np.dtype("u1"), (16, 2, 4), 128)


def test_tensors_begin_at_64_bytes() -> None:
    d = mha("a", kv_heads=1, head_dim=3, page_tokens=1, dtype="int8", engine_family="VLLM")
    assert [place.offset for place in d.page_layout.tensors] == [0, 64]
    assert d.page_bytes == 67
    assert d.stride_bytes == 6


@pytest.mark.parametrize("arrangement", ["separate", "interleaved"])
@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_the_stride_is_the_formula(arrangement: str, order: str) -> None:
    """2 * S * H_kv * D * b bytes, of which a page holds `layers`."""
    d = mha(
        "a",
        layers=80,
        kv_heads=8,
        head_dim=128,
        dtype="bfloat16",
        engine_family="VLLM",
        arrangement=arrangement,
        dimension_order=order,
    )
    assert d.stride_bytes == d.layout.stride_bytes == 2 * 16 * 8 * 128 * 2
    assert d.page_bytes == 80 * d.stride_bytes


@given(descriptors())
def test_no_byte_belongs_to_two_tensors_and_none_lies_outside(d: AnyDescriptor) -> None:
    page = np.zeros(d.page_bytes, np.uint8)
    for place in d.page_layout.tensors:
        stored_bytes(place, page)[...] += 1
    assert page.max() == 1
    assert page.sum() == sum(place.nbytes for place in d.page_layout.tensors)
    assert page[-1] == 1 or d.layout.arrangement == "interleaved"


@given(descriptors(), st.sampled_from([0, 64, 4096]))
def test_views_are_aligned_and_read_back_what_was_written(d: AnyDescriptor, start: int) -> None:
    arena = np.zeros(start + d.page_bytes + 64, np.uint8)
    start += -arena.ctypes.data % 64
    for number, place in enumerate(d.page_layout.tensors, 1):
        place.view(arena, start)[...] = number
    for number, place in enumerate(d.page_layout.tensors, 1):
        view = place.view(arena, start)
        assert view.flags.aligned
        assert (view == np.array(number).astype(place.dtype)).all()
    assert not arena[:start].any()
    assert not arena[start + d.page_bytes :].any()


@given(descriptors())
def test_separate_tensors_are_contiguous_and_aligned(d: AnyDescriptor) -> None:
    if d.layout.arrangement == "separate":
        page = np.zeros(d.page_bytes, np.uint8)
        assert all(place.view(page).flags.c_contiguous for place in d.page_layout.tensors)
        assert all(place.offset % 64 == 0 for place in d.page_layout.tensors)


def test_a_view_of_read_only_memory_cannot_be_written() -> None:
    d = mha("a", kv_heads=1, head_dim=8, dtype="float16", engine_family="VLLM")
    view = d.page_layout.tensors[0].view(bytes(d.page_bytes))
    with pytest.raises(ValueError, match="read-only"):
        view[...] = 0


@pytest.mark.parametrize(
    ("page", "slot"),
    [
        (1, 64),
        (64, 64),
        (65, 128),
        (16 * 1024 - 1, 16 * 1024),
        (16 * 1024, 16 * 1024),
        (16 * 1024 + 1, 20 * 1024),
        (2097152, 2097152),
        (1124352, 1126400),
    ],
)
def test_slots(page: int, slot: int) -> None:
    assert slot_bytes(page) == slot
