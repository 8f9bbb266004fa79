"""Named descriptors of published models.

Owns their geometry and its sources. Knows nothing of who uses them: an engine with other page sizes or element
types builds its own with the constructors.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.kinds import MhaKv, dsa, dsa_indexer, kda, mamba2, mha, mla, nsa, tot, vision
from nexuskv.contract.reuse import Window

LLAMA_3_8B: Final = mha(
    "llama-3-8b-page16", layers=32, kv_heads=8, head_dim=128, dtype="bfloat16", engine_family="VLLM"
)
"""meta-llama/Meta-Llama-3-8B, config.json: 32 layers, 8 key-value heads, 4096 / 32 heads = 128."""

LLAMA_3_70B: Final = mha(
    "llama-3-70b-page16", layers=80, kv_heads=8, head_dim=128, dtype="bfloat16", engine_family="VLLM"
)
"""meta-llama/Meta-Llama-3-70B, config.json: 80 layers, 8 key-value heads, 8192 / 64 heads = 128."""

QWEN2_5_7B: Final = mha(
    "qwen2.5-7b-page16", layers=28, kv_heads=4, head_dim=128, dtype="bfloat16", engine_family="VLLM"
)
"""Qwen/Qwen2.5-7B, config.json: 28 layers, 4 key-value heads, hidden size 3584 / 28 heads = 128."""

MISTRAL_7B: Final = mha(
    "mistral-7b-v0.1-page16",
    layers=32,
    kv_heads=8,
    head_dim=128,
    dtype="bfloat16",
    engine_family="VLLM",
    reuse=Window(tokens=4096),
)
"""mistralai/Mistral-7B-v0.1, config.json: 32 layers, 8 key-value heads, 4096 / 32 heads = 128, sliding_window 4096."""

DEEPSEEK_V2: Final = mla("deepseek-v2-mla-page16", layers=60, dtype="bfloat16", engine_family="VLLM")
"""deepseek-ai/DeepSeek-V2, config.json: 60 layers, kv_lora_rank 512, qk_rope_head_dim 64."""

DEEPSEEK_V3: Final = mla("deepseek-v3-mla-page16", layers=61, dtype="bfloat16", engine_family="VLLM")
"""deepseek-ai/DeepSeek-V3, config.json: 61 layers, kv_lora_rank 512, qk_rope_head_dim 64."""

DEEPSEEK_V3_2: Final = dsa(
    "deepseek-v3.2-dsa-page64",
    layers=61,
    top_k=64,
    block_tokens=1,
    kv_heads=1,
    head_dim=576,
    index_dim=128,
    dtype="bfloat16",
    index_dtype="float8_e4m3fn",
    quantization="fp8_e4m3",
    engine_family="VLLM",
)
"""deepseek-ai/DeepSeek-V3.2-Exp, config.json: 61 layers, latents of kv_lora_rank 512 + qk_rope_head_dim 64 that all
heads share, index_head_dim 128. Its selector chooses single tokens (index_topk 2048 of the context), so a block is one
token, and a page has the 64 that FlashMLA's sparse kernel has in its own pages. Indexer keys are fp8 with one float32
scale a token: 132 bytes, as in DeepGEMM's and vLLM's indexer cache."""

DEEPSEEK_V3_2_INDEXER: Final = dsa_indexer(
    "deepseek-v3.2-indexer-page64",
    layers=61,
    index_dim=128,
    dtype="float8_e4m3fn",
    quantization="fp8_e4m3",
    engine_family="VLLM",
)
"""The indexer keys of the same model alone, for engines that keep them in a pool of their own: a group binds them."""

KIMI_LINEAR_KDA: Final = kda(
    "kimi-linear-48b-kda-checkpoint256",
    layers=20,
    heads=32,
    key_dim=128,
    conv_width=4,
    dtype="bfloat16",
    engine_family="VLLM",
)
"""moonshotai/Kimi-Linear-48B-A3B-Instruct, config.json: 27 layers, 20 of them in linear_attn_config.kda_layers, with
num_heads 32, head_dim 128, short_conv_kernel_size 4; the state in float32 as FLA's kernels keep it."""

KIMI_LINEAR_MLA: Final = mla("kimi-linear-48b-mla-page16", layers=7, dtype="bfloat16", engine_family="VLLM")
"""The other 7 layers of the same model, full_attn_layers: kv_lora_rank 512, qk_rope_head_dim 64 (mla_use_nope: there,
but never rotated)."""

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

JAMBA_ATTENTION: Final = mha(
    "jamba-v0.1-attention-page16", layers=4, kv_heads=8, head_dim=128, dtype="bfloat16", engine_family="VLLM"
)
"""ai21labs/Jamba-v0.1, config.json: 32 layers, every 8th from the 5th on (attn_layer_period 8, attn_layer_offset 4) of
attention, with 8 key-value heads of 4096 / 32 = 128."""

JAMBA_MAMBA: Final = mamba2(
    "jamba-v0.1-mamba-checkpoint256",
    layers=28,
    heads=1,
    head_dim=8192,
    state_size=16,
    conv_channels=8192,
    dtype="bfloat16",
    engine_family="VLLM",
)
"""The other 28 layers of the same model: mamba_expand 2 (d_inner 8192), mamba_d_state 16, mamba_d_conv 4. They are of
the first Mamba: one head of all channels, and a convolution of d_inner alone."""

NSA_27B: Final = nsa(
    "nsa-27b-page64",
    layers=30,
    page_tokens=64,
    block_tokens=64,
    summary_stride=16,
    kv_heads=4,
    head_dim=320,
    dtype="bfloat16",
    engine_family="SGLANG",
)
"""The 27B model of the paper, arXiv 2502.11089, section 4.1: 30 layers, 4 KV groups with d_k 192 and d_v 128, summaries
every d = 16 tokens, selection blocks of l' = 64. The keys and values of its third branch, the last 512 tokens, are
others (section 3.3) and not among these."""

QWEN2_VL_7B: Final = vision(
    "qwen2-vl-7b-image448",
    layers=28,
    grid_height=16,
    grid_width=16,
    key_dim=512,
    kv_heads=4,
    head_dim=128,
    dtype="bfloat16",
    engine_family="VLLM",
)
"""Qwen/Qwen2-VL-7B-Instruct, config.json: 28 layers, 4 key-value heads of 3584 / 28 = 128, so 512 numbers a key; an
image of 448 x 448 in patches of 14, merged 2 x 2, is a grid of 16 x 16. "key" is rotated by M-RoPE; "cross_key" is not,
so that an image can be reused where it stands elsewhere in a prompt."""

LLAMA_3_8B_TOT: Final = tot(
    "llama-3-8b-tot-page16", layers=32, kv_heads=8, head_dim=128, dtype="bfloat16", engine_family="SGLANG"
)
"""The geometry of LLAMA_3_8B, for branches."""


def _multi_head(preset: Descriptor, *, layers: int, heads: int, head_dim: int) -> MhaKv:
    """Plain attention of the same depth in which every query head has a key and a value of its own, in bfloat16."""
    return mha(
        f"{preset.descriptor_id}/multi-head",
        layers=layers,
        kv_heads=heads,
        head_dim=head_dim,
        dtype="bfloat16",
        engine_family=preset.engine_family,
    )


_CATALOGUE: Final = (
    (LLAMA_3_8B, _multi_head(LLAMA_3_8B, layers=32, heads=32, head_dim=128)),
    (LLAMA_3_70B, _multi_head(LLAMA_3_70B, layers=80, heads=64, head_dim=128)),
    (QWEN2_5_7B, _multi_head(QWEN2_5_7B, layers=28, heads=28, head_dim=128)),
    (MISTRAL_7B, _multi_head(MISTRAL_7B, layers=32, heads=32, head_dim=128)),
    (DEEPSEEK_V2, _multi_head(DEEPSEEK_V2, layers=60, heads=128, head_dim=128)),
    (DEEPSEEK_V3, _multi_head(DEEPSEEK_V3, layers=61, heads=128, head_dim=128)),
    (DEEPSEEK_V3_2, _multi_head(DEEPSEEK_V3_2, layers=61, heads=128, head_dim=128)),
    (DEEPSEEK_V3_2_INDEXER, _multi_head(DEEPSEEK_V3_2_INDEXER, layers=61, heads=128, head_dim=128)),
    (KIMI_LINEAR_KDA, _multi_head(KIMI_LINEAR_KDA, layers=20, heads=32, head_dim=128)),
    (KIMI_LINEAR_MLA, _multi_head(KIMI_LINEAR_MLA, layers=7, heads=32, head_dim=128)),
    (MAMBA2_2_7B, _multi_head(MAMBA2_2_7B, layers=64, heads=20, head_dim=128)),
    (JAMBA_ATTENTION, _multi_head(JAMBA_ATTENTION, layers=4, heads=32, head_dim=128)),
    (JAMBA_MAMBA, _multi_head(JAMBA_MAMBA, layers=28, heads=32, head_dim=128)),
    (NSA_27B, _multi_head(NSA_27B, layers=30, heads=64, head_dim=160)),
    (QWEN2_VL_7B, _multi_head(QWEN2_VL_7B, layers=28, heads=28, head_dim=128)),
    (LLAMA_3_8B_TOT, _multi_head(LLAMA_3_8B_TOT, layers=32, heads=32, head_dim=128)),
)

PRESETS: Final[Mapping[str, Descriptor]] = MappingProxyType(
    {preset.descriptor_id: preset for preset, _ in _CATALOGUE}
)
"""By descriptor id."""

MULTI_HEAD: Final[Mapping[str, MhaKv]] = MappingProxyType(
    {preset.descriptor_id: reference for preset, reference in _CATALOGUE}
)
"""By the preset's id, what the same layers would keep if they were of multi-head attention: as many heads as the model
has query heads, of the mean width of its keys and values (DeepSeek: 128 heads of 128, without the RoPE part; NSA: 64 of
(192 + 128) / 2). Mamba-2 2.7B has no heads of attention: as wide as its d_model of 2560."""
