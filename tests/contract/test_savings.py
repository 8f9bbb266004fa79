"""The savings that papers publish, computed from descriptors."""

import pytest

from nexuskv.contract import PRESETS, mha, mla, saving

V2 = mla("deepseek-v2", layers=60, dtype="bfloat16", engine_family="VLLM")
DENSE_67B = mha("deepseek-67b", layers=95, kv_heads=8, head_dim=128, dtype="bfloat16", engine_family="VLLM")


def test_deepseek_v2_saves_93_3_percent() -> None:
    """1 - (60 * 576 * 6) / (95 * 2 * 8 * 128 * 16), DeepSeek-V2, arXiv 2405.04434."""
    assert saving(DENSE_67B, V2, candidate_bits=6) == pytest.approx(0.9334, abs=5e-5)


def test_without_its_6_bit_cache_it_saves_82_2_percent() -> None:
    assert saving(DENSE_67B, V2) == pytest.approx(1 - (60 * 576) / (95 * 2 * 8 * 128))


def test_a_kind_saves_nothing_against_itself() -> None:
    assert saving(V2, V2) == 0


def test_a_larger_state_saves_less_than_nothing() -> None:
    assert saving(V2, DENSE_67B) < 0


def test_page_size_does_not_matter() -> None:
    longer = mla("deepseek-v2", layers=60, page_tokens=64, dtype="bfloat16", engine_family="VLLM")
    assert saving(DENSE_67B, longer) == pytest.approx(saving(DENSE_67B, V2))


def test_quantised_keys_cost_their_scales() -> None:
    llama = PRESETS["llama-3-8b-page16"]
    int8 = mha(
        "llama-3-8b-int8",
        layers=32,
        kv_heads=8,
        head_dim=128,
        dtype="int8",
        engine_family="VLLM",
        quantization="int8_per_token_head_f32_scale_v1",
    )
    assert saving(llama, int8) == pytest.approx(1 - (128 + 4) / 256)
