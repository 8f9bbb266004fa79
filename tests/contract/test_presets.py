"""The presets, against figures worked out by hand from the published geometry."""

import pytest

from nexuskv.contract import PRESETS, DType, Role

FIGURES = {
    # 2 (K and V) * 16 tokens * 8 heads * 128 * 2 B = 65,536 a layer; * 32 layers
    "llama-3-8b-page16": (65_536, 2_097_152, 131_072.0),
    # 2 * 16 * 4 * 128 * 2 B = 32,768 a layer; * 28 layers
    "qwen2.5-7b-page16": (32_768, 917_504, 57_344.0),
    # 16 * (512 + 64) * 2 B = 18,432 a layer; * 61 layers
    "deepseek-v3-mla-page16": (18_432, 1_124_352, 70_272.0),
    # state 80 * 128 * 64 * 2 B = 1,310,720; conv (5120 + 2 * 128) * 4 * 2 B = 43,008; * 64 layers; a page is 256 tokens
    "mamba2-2.7b-checkpoint256": (1_353_728, 86_638_592, 338_432.0),
}


def test_these_are_the_presets() -> None:
    assert set(PRESETS) == set(FIGURES)
    assert all(name == preset.descriptor_id for name, preset in PRESETS.items())


@pytest.mark.parametrize("name", FIGURES)
def test_bytes(name: str) -> None:
    preset = PRESETS[name]
    assert (preset.stride_bytes, preset.page_bytes, preset.bytes_per_token) == FIGURES[name]


@pytest.mark.parametrize("name", FIGURES)
def test_no_preset_has_padding(name: str) -> None:
    preset = PRESETS[name]
    assert sum(place.nbytes for place in preset.page_layout.tensors) == preset.page_bytes


def test_mamba2_has_the_geometry_of_its_paper() -> None:
    preset = PRESETS["mamba2-2.7b-checkpoint256"]
    shapes = {place.role: place.shape for place in preset.page_layout.tensors}
    assert shapes == {Role.RECURRENT_STATE: (64, 80, 128, 64), Role.CONV_STATE: (64, 5376, 4)}
    assert {spec.dtype for spec in preset.tensor_specs} == {DType.BFLOAT16}


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PRESETS["mine"] = PRESETS["llama-3-8b-page16"]  # type: ignore[index]  # the fault under test
