"""The savings that papers publish, computed from descriptors."""

import pytest

from nexuskv.contract import MULTI_HEAD, PRESETS, context_bytes, context_saving, mha, mla, saving
from nexuskv.errors import LocalError

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


CONTEXT = 128 * 1024


def test_attention_keeps_every_page_of_a_context() -> None:
    llama = PRESETS["llama-3-8b-page16"]
    assert context_bytes(llama, CONTEXT) == 16 << 30
    assert context_bytes(llama, 17) == 2 * llama.page_bytes


@pytest.mark.parametrize("tokens", [0, -1])
def test_without_a_token_there_is_no_context(tokens: int) -> None:
    llama = PRESETS["llama-3-8b-page16"]
    with pytest.raises(LocalError, match="give 1 or more"):
        context_saving(llama, llama, tokens)


def test_a_window_keeps_its_own_pages() -> None:
    mistral = PRESETS["mistral-7b-v0.1-page16"]
    assert context_bytes(mistral, CONTEXT) == 4096 // 16 * mistral.page_bytes
    assert context_bytes(mistral, 32) == 2 * mistral.page_bytes


@pytest.mark.parametrize(
    "name",
    ["mamba2-2.7b-checkpoint256", "jamba-v0.1-mamba-checkpoint256", "kimi-linear-48b-kda-checkpoint256"],
)
def test_a_checkpoint_costs_the_same_after_any_context(name: str) -> None:
    assert (
        context_bytes(PRESETS[name], 1) == context_bytes(PRESETS[name], 1 << 24) == PRESETS[name].page_bytes
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3-8b-page16", 1 - 8 / 32),
        ("qwen2.5-7b-page16", 1 - 4 / 28),
        ("deepseek-v3-mla-page16", 1 - 576 / (2 * 128 * 128)),
        ("mistral-7b-v0.1-page16", 1 - (8 / 32) * (4096 / CONTEXT)),
        ("nsa-27b-page64", 1 - (4 * 320 * 68 / 64) / (2 * 64 * 160)),
    ],
)
def test_savings_against_multi_head_attention(name: str, expected: float) -> None:
    assert context_saving(MULTI_HEAD[name], PRESETS[name], CONTEXT) == pytest.approx(expected)
