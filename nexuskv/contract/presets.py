"""Named descriptors of published models.

Owns their geometry and its sources. Knows nothing of who uses them: an engine with other page sizes or element
types builds its own with the constructors.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.kinds import mamba2, mha, mla

LLAMA_3_8B: Final = mha(
    "llama-3-8b-page16", layers=32, kv_heads=8, head_dim=128, dtype="bfloat16", engine_family="VLLM"
)
"""meta-llama/Meta-Llama-3-8B, config.json: 32 layers, 8 key-value heads, 4096 / 32 heads = 128."""

QWEN2_5_7B: Final = mha(
    "qwen2.5-7b-page16", layers=28, kv_heads=4, head_dim=128, dtype="bfloat16", engine_family="VLLM"
)
"""Qwen/Qwen2.5-7B, config.json: 28 layers, 4 key-value heads, hidden size 3584 / 28 heads = 128."""

DEEPSEEK_V3: Final = mla("deepseek-v3-mla-page16", layers=61, dtype="bfloat16", engine_family="VLLM")
"""deepseek-ai/DeepSeek-V3, config.json: 61 layers, kv_lora_rank 512, qk_rope_head_dim 64."""

MAMBA2_2_7B: Final = mamba2(
    "mamba2-2.7b-checkpoint256",
    layers=64,
    heads=80,
    head_dim=64,
    state_size=128,
    dtype="bfloat16",
    engine_family="VLLM",
)
"""state-spaces/mamba2-2.7b, config.json: 64 layers, d_model 2560. The rest are defaults of mamba_ssm's Mamba2:
expand 2 (d_inner 5120, 80 heads of 64), d_state 128, 1 group, d_conv 4, both states in the model's dtype; here with
a snapshot every chunk of 256 tokens."""

PRESETS: Final[Mapping[str, Descriptor]] = MappingProxyType(
    {preset.descriptor_id: preset for preset in (LLAMA_3_8B, QWEN2_5_7B, DEEPSEEK_V3, MAMBA2_2_7B)}
)
"""By descriptor id."""
