"""The presets, against figures worked out by hand from the published geometry."""

import pytest

from nexuskv.contract import MULTI_HEAD, PRESETS, DType, Role, Window

FIGURES = {
    # 2 (K and V) * 16 tokens * 8 heads * 128 * 2 B = 65,536 a layer; * 32 layers
    "llama-3-8b-page16": (65_536, 2_097_152, 131_072.0),
    # 2 * 16 * 4 * 128 * 2 B = 32,768 a layer; * 28 layers
    "qwen2.5-7b-page16": (32_768, 917_504, 57_344.0),
    # 16 * (512 + 64) * 2 B = 18,432 a layer; * 61 layers
    "deepseek-v3-mla-page16": (18_432, 1_124_352, 70_272.0),
    # the same 65,536 a layer; * 80 layers
    "llama-3-70b-page16": (65_536, 5_242_880, 327_680.0),
    # the same 65,536 a layer; * 32 layers
    "mistral-7b-v0.1-page16": (65_536, 2_097_152, 131_072.0),
    # the same 18,432 a layer; * 60 layers
    "deepseek-v2-mla-page16": (18_432, 1_105_920, 69_120.0),
    # 64 * 576 * 2 B = 73,728; 64 numbers of 4 B = 256; indexer keys 64 * (128 + 4) B = 8,448; * 61 layers
    "deepseek-v3.2-dsa-page64": (82_432, 5_028_352, 78_568.0),
    # 64 * (128 + 4) B; * 61 layers
    "deepseek-v3.2-indexer-page64": (8_448, 515_328, 8_052.0),
    # state 32 * 128 * 128 * 4 B = 2,097,152; decay 32 * 128 * 4 B = 16,384; conv 32 * 3 * 128 * 4 * 2 B = 98,304;
    # * 20 layers; a page is 256 tokens
    "kimi-linear-48b-kda-checkpoint256": (2_211_840, 44_236_800, 172_800.0),
    # 16 * 576 * 2 B a layer; * 7 layers
    "kimi-linear-48b-mla-page16": (18_432, 129_024, 8_064.0),
    # the same 65,536 a layer; * 4 layers
    "jamba-v0.1-attention-page16": (65_536, 262_144, 16_384.0),
    # state 16 * 8192 * 2 B = 262,144; conv 8192 * 4 * 2 B = 65,536; * 28 layers; a page is 256 tokens
    "jamba-v0.1-mamba-checkpoint256": (327_680, 9_175_040, 35_840.0),
    # a token and layer has 4 * (192 + 128) * 2 B = 2,560; 64 tokens and 64 / 16 summaries = 68 of them; * 30 layers
    "nsa-27b-page64": (174_080, 5_222_400, 81_600.0),
    # 16 * 16 places * 3 tensors * 512 * 2 B = 786,432 a layer; * 28 layers
    "qwen2-vl-7b-image448": (786_432, 22_020_096, 86_016.0),
    # as llama-3-8b-page16
    "llama-3-8b-tot-page16": (65_536, 2_097_152, 131_072.0),
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


def test_mistral_is_restored_from_its_window() -> None:
    assert PRESETS["mistral-7b-v0.1-page16"].reuse == Window(tokens=4096)


def test_a_page_of_deepseek_v3_2_has_its_indexer_keys() -> None:
    preset = PRESETS["deepseek-v3.2-dsa-page64"]
    shapes = {place.role: place.shape for place in preset.page_layout.tensors}
    assert shapes == {
        Role.SPARSE_BLOCK: (61, 64, 1, 1, 576),
        Role.SELECTOR_INDEX: (61, 64),
        Role.INDEXER_K: (61, 64, 128),
        Role.SCALE: (61, 64),
    }


def test_kimi_linear_has_the_state_of_its_20_layers() -> None:
    preset = PRESETS["kimi-linear-48b-kda-checkpoint256"]
    shapes = {place.role: place.shape for place in preset.page_layout.tensors}
    assert shapes == {
        Role.RECURRENT_STATE: (20, 32, 128, 128),
        Role.DECAY: (20, 32, 128),
        Role.CONV_STATE: (20, 32 * 3 * 128, 4),
    }


@pytest.mark.parametrize("name", PRESETS)
def test_its_multi_head_reference_has_a_head_a_query(name: str) -> None:
    reference = MULTI_HEAD[name]
    assert reference.dims["layers"] == PRESETS[name].dims["layers"]
    assert reference.tensor_specs[0].dtype is DType.BFLOAT16


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PRESETS["mine"] = PRESETS["llama-3-8b-page16"]  # type: ignore[index]  # the fault under test
