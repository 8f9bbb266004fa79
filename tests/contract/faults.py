"""Documents with one fault each: what the tests of refusals feed to every way of building a descriptor.

Owns the cases. Knows nothing of how a document becomes a descriptor.
"""

from typing import Any

import msgspec

from nexuskv.contract import (
    MAX_PAGE_BYTES,
    AnyDescriptor,
    dsa,
    kda,
    mamba2,
    mha,
    mla,
    nsa,
    to_json,
    tot,
    vision,
)

Document = dict[str, Any]
Case = tuple[Document, str, str]
"""A document, the field that its refusal names, and a part of the sentence."""

INT8 = "int8_per_token_head_f32_scale_v1"

MHA = mha("a", layers=2, kv_heads=4, head_dim=8, dtype="float16", engine_family="VLLM")
MHA_INT8 = mha("a", layers=2, kv_heads=4, head_dim=8, dtype="int8", engine_family="VLLM", quantization=INT8)
MHA_FP8 = mha(
    "a",
    layers=2,
    kv_heads=4,
    head_dim=8,
    dtype="float8_e4m3fn",
    engine_family="VLLM",
    quantization="fp8_e4m3",
    arrangement="interleaved",
)
MLA = mla("a", layers=2, dtype="float16", engine_family="VLLM", arrangement="interleaved")
DSA = dsa(
    "a", top_k=4, block_tokens=2, kv_heads=1, head_dim=8, index_dim=4, dtype="float16", engine_family="VLLM"
)
KDA = kda("a", heads=2, key_dim=4, dtype="float16", engine_family="VLLM")
NSA = nsa("a", page_tokens=8, block_tokens=4, kv_heads=1, head_dim=8, dtype="float16", engine_family="VLLM")
VISION = vision(
    "a",
    grid_height=2,
    grid_width=2,
    key_dim=8,
    kv_heads=1,
    head_dim=8,
    dtype="float16",
    engine_family="VLLM",
)
TOT = tot("a", kv_heads=1, head_dim=8, dtype="float16", engine_family="VLLM")
MAMBA = mamba2("a", heads=2, head_dim=4, state_size=8, dtype="float16", engine_family="VLLM")


def changed(descriptor: AnyDescriptor, path: str, value: object) -> Document:
    """The descriptor's document with the item at a path like `tensor_specs.0.role` set to `value`."""
    document: Document = msgspec.json.decode(to_json(descriptor))
    document["layout"]["stride_bytes"] = None  # so that each case has the one fault it is about
    *outer, last = path.split(".")
    target: Any = document
    for step in outer:
        target = target[int(step) if step.isdigit() else step]
    target[int(last) if last.isdigit() else last] = value
    return document


def removed(descriptor: AnyDescriptor, path: str) -> Document:
    *outer, last = path.split(".")
    document = changed(descriptor, path, None)
    target: Any = document
    for step in outer:
        target = target[step]
    del target[last]
    return document


KEY, VALUE = (msgspec.to_builtins(spec) for spec in MHA.tensor_specs)
INDEXER = msgspec.to_builtins(DSA.tensor_specs[2])
LATENT = {"name": "latent", "role": "LATENT_KV", "dtype": "float16", "shape": ["layers", "page_tokens"]}
SCALE = {"name": "key_scale", "role": "SCALE", "dtype": "float32", "shape": ["layers"]}

FAULTS: dict[str, Case] = {
    "empty id": (changed(MHA, "descriptor_id", ""), "descriptor_id", "1 to 160"),
    "overlong id": (changed(MHA, "descriptor_id", "x" * 161), "descriptor_id", "161 bytes"),
    "space in id": (changed(MHA, "descriptor_id", "a b"), "descriptor_id", "' ' is forbidden"),
    "newline after id": (changed(MHA, "descriptor_id", "a\n"), "descriptor_id", "forbidden"),
    "letter beyond ASCII in id": (
        changed(MHA, "descriptor_id", "caché"),
        "descriptor_id",
        "'é' is forbidden",
    ),
    "number for id": (changed(MHA, "descriptor_id", 7), "descriptor_id", "Expected `str`"),
    "unknown engine": (changed(MHA, "engine_family", "TORCH"), "engine_family", "SGLANG, TENSORRT_LLM"),
    "unknown granularity": (changed(MHA, "granularity", "CHUNK"), "granularity", "CHECKPOINT"),
    "unknown role": (changed(MHA, "tensor_specs.1.role", "QUERY"), "tensor_specs[1].role", "RECURRENT_STATE"),
    "unknown dtype": (changed(MHA, "tensor_specs.0.dtype", "f64"), "tensor_specs[0].dtype", "bfloat16"),
    "unknown arrangement": (changed(MHA, "layout.arrangement", "mixed"), "layout.arrangement", "interleaved"),
    "unknown order": (changed(MHA, "layout.dimension_order", "DHN"), "layout.dimension_order", "NHD, HND"),
    "unknown scheme": (changed(MHA, "quantization.scheme", "fp4"), "quantization.scheme", "fp8_e5m2"),
    "unknown flag": (changed(MHA, "compatibility_flags", ["FAST"]), "compatibility_flags[0]", "COW_BRANCH"),
    "unknown reuse rule": (changed(MHA, "reuse", {"rule": "SOME"}), "reuse.rule", "'SOME' is unknown"),
    "unknown field of the layout": (changed(MHA, "layout.padding", 64), "layout.padding", "unknown field"),
    "unknown field of a tensor": (
        changed(MHA, "tensor_specs.1.device", 0),
        "tensor_specs[1].device",
        "unknown field",
    ),
    "unknown field of the scheme": (
        changed(MHA, "quantization.bits", 8),
        "quantization.bits",
        "unknown field",
    ),
    "window of no window rule": (
        changed(MHA, "reuse", {"rule": "ALL_PAGES", "tokens": 1}),
        "reuse.tokens",
        "unknown field",
    ),
    "no page tokens": (removed(MHA, "layout.page_tokens"), "layout.page_tokens", "missing"),
    "unbound dimension": (removed(MHA, "dims.kv_heads"), "tensor_specs[0].shape", "'kv_heads' is not bound"),
    "zero dimension": (changed(MHA, "dims.kv_heads", 0), "dims.kv_heads", "0 is out of bounds"),
    "negative dimension": (changed(MHA, "dims.layers", -1), "dims.layers", "-1 is out of bounds"),
    "dimension beyond 64 bits": (changed(MHA, "dims.head_dim", 2**63), "dims.head_dim", "out of bounds"),
    "text for a dimension": (changed(MHA, "dims.head_dim", "8"), "dims", "Expected `int`"),
    "truth for a dimension": (changed(MHA, "dims.head_dim", True), "dims", "Expected `int`"),
    "unused dimension": (changed(MHA, "dims.experts", 8), "dims.experts", "no tensor has this axis"),
    "page tokens bound twice": (
        changed(MHA, "dims.page_tokens", 16),
        "dims.page_tokens",
        "layout.page_tokens",
    ),
    "bad dimension name": (changed(MHA, "dims.KV", 1), "dims", "'KV' is no name"),
    "no tokens a page": (changed(MHA, "layout.page_tokens", 0), "layout.page_tokens", "out of bounds"),
    "size beyond 64 bits": (changed(MHA, "dims.head_dim", 2**62), "page_bytes", "overflows 64 bits"),
    "page above the maximum": (changed(MHA, "layout.page_tokens", 2**25), "page_bytes", str(MAX_PAGE_BYTES)),
    "tensor name twice": (changed(MHA, "tensor_specs.1.name", "key"), "tensor_specs", "2 tensors are named"),
    "bad tensor name": (
        changed(MHA, "tensor_specs.0.name", "k v"),
        "tensor_specs[0].name",
        "'k v' is no name",
    ),
    "no tensors": (changed(MHA, "tensor_specs", []), "tensor_specs", "needs one tensor of role KEY, not 0"),
    "missing role": (changed(MHA, "tensor_specs", [KEY]), "tensor_specs", "one tensor of role VALUE, not 0"),
    "role twice": (
        changed(MHA, "tensor_specs", [KEY, VALUE, {**KEY, "name": "key2"}]),
        "tensor_specs",
        "one tensor of role KEY, not 2",
    ),
    "role of another kind": (
        changed(MHA, "tensor_specs", [KEY, VALUE, LATENT]),
        "tensor_specs[2].role",
        "MHA_KV has no LATENT_KV; it has KEY, VALUE, SCALE",
    ),
    "role missing in MLA": (
        changed(MLA, "tensor_specs.1.role", "LATENT_KV"),
        "tensor_specs",
        "MLA_LATENT needs one tensor of role LATENT_KV, not 2",
    ),
    "axes against the declared order": (
        changed(MHA, "layout.dimension_order", "HND"),
        "tensor_specs[0].shape",
        "['layers', 'kv_heads', 'page_tokens', 'head_dim']",
    ),
    "tensor without the layers of the others": (
        changed(MHA, "tensor_specs.1.shape", ["page_tokens", "kv_heads", "head_dim"]),
        "tensor_specs[1].shape",
        "has ['layers',",
    ),
    "axis twice": (
        changed(MHA, "tensor_specs.0.shape", ["head_dim", "head_dim"]),
        "tensor_specs[0].shape",
        "occurs twice",
    ),
    "bad axis name": (changed(MHA, "tensor_specs.0.shape", ["S"]), "tensor_specs[0].shape", "'S' is no name"),
    "too many axes": (
        changed(MHA, "tensor_specs.0.shape", list("abcdefghi")),
        "tensor_specs[0].shape",
        "9 axes; 8 is the most",
    ),
    "too many tensors": (
        changed(MHA, "tensor_specs", [KEY | {"name": f"k{i}"} for i in range(65)]),
        "tensor_specs",
        "65 tensors; 64 is the most",
    ),
    "order of heads where there are none": (
        changed(MLA, "layout.dimension_order", "HND"),
        "layout.dimension_order",
        "use NHD",
    ),
    "scale tensors without a scheme": (
        changed(MHA_INT8, "quantization.scheme", "none"),
        "quantization.scheme",
        "name their scheme",
    ),
    "scale names without a scheme": (
        changed(MHA, "quantization.scale_tensors", ["key_scale"]),
        "quantization.scheme",
        "name their scheme",
    ),
    "scheme without scale tensors": (
        changed(MHA, "quantization.scheme", "fp8_e4m3"),
        "quantization.scheme",
        "needs a tensor of dtype float8_e4m3fn",
    ),
    "payload without scale tensors": (
        changed(MHA_INT8, "tensor_specs", msgspec.to_builtins(MHA_INT8.tensor_specs[:2]))
        | {"quantization": {"scheme": INT8}},
        "quantization.scale_tensors",
        "0 scale tensors for 2 of dtype int8",
    ),
    "scale tensors that are not declared": (
        changed(MHA_INT8, "quantization.scale_tensors", ["key_scale"]),
        "quantization.scale_tensors",
        "['key_scale', 'value_scale']",
    ),
    "scale tensors that do not exist": (
        changed(MHA_INT8, "quantization.scale_tensors", ["a", "b"]),
        "quantization.scale_tensors",
        "['a', 'b'] declared",
    ),
    "one scale for two payloads": (
        changed(MHA_INT8, "tensor_specs", msgspec.to_builtins(MHA_INT8.tensor_specs[:3]))
        | {"quantization": {"scheme": INT8, "scale_tensors": ["key_scale"]}},
        "quantization.scale_tensors",
        "1 scale tensors for 2",
    ),
    "int8 scales of another type": (
        changed(MHA_INT8, "tensor_specs.2.dtype", "float16"),
        "tensor_specs[2].dtype",
        "float16 where int8_per_token_head_f32_scale_v1 has float32",
    ),
    "integer scales": (changed(MHA_FP8, "tensor_specs.3.dtype", "int32"), "tensor_specs[3].dtype", "float32"),
    "int8 scales of another shape": (
        changed(MHA_INT8, "tensor_specs.3.shape", ["layers", "kv_heads"]),
        "tensor_specs[3].shape",
        "'value' has a scale for each of ['layers', 'page_tokens', 'kv_heads']",
    ),
    "scales not cut by layers": (
        changed(MHA_FP8, "tensor_specs.2.shape", ["kv_heads", "layers"]),
        "tensor_specs[2].shape",
        "begin with ['layers']",
    ),
    "scheme of a kind that has none": (
        changed(MAMBA, "quantization.scheme", "fp8_e4m3"),
        "quantization.scheme",
        "SSM_MAMBA2 is stored with none only",
    ),
    "blocks without their numbers": (
        changed(DSA, "tensor_specs", msgspec.to_builtins(DSA.tensor_specs[::2])),
        "tensor_specs",
        "needs one tensor of role SELECTOR_INDEX, not 0; it has SPARSE_BLOCK+SELECTOR_INDEX, or",
    ),
    "indexer keys twice": (
        changed(
            DSA,
            "tensor_specs",
            [*msgspec.to_builtins(DSA.tensor_specs), {**INDEXER, "name": "more"}],
        ),
        "tensor_specs",
        "one tensor of role INDEXER_K, not 2",
    ),
    "block numbers that are no integers": (
        changed(DSA, "tensor_specs.1.dtype", "float16"),
        "tensor_specs[1].dtype",
        "int32 or uint32",
    ),
    "a state without its decay": (
        changed(KDA, "tensor_specs", msgspec.to_builtins(KDA.tensor_specs[:1])),
        "tensor_specs",
        "KDA_RECURRENT needs one tensor of role DECAY, not 0",
    ),
    "blocks without summaries": (
        changed(NSA, "tensor_specs", msgspec.to_builtins(NSA.tensor_specs[1:])),
        "tensor_specs",
        "NSA_SPARSE needs one tensor of role SUMMARY, not 0",
    ),
    "vision of nothing": (
        changed(VISION, "tensor_specs", []),
        "tensor_specs",
        "it has KEY, or KEY+CROSS_KEY+CROSS_VALUE, or CROSS_KEY+CROSS_VALUE",
    ),
    "cross keys without values": (
        changed(VISION, "tensor_specs", msgspec.to_builtins(VISION.tensor_specs[:2])),
        "tensor_specs",
        "VISION_KV needs",
    ),
    "a branch without values": (
        changed(TOT, "tensor_specs", msgspec.to_builtins(TOT.tensor_specs[:1])),
        "tensor_specs",
        "TOT_BRANCH needs one tensor of role VALUE, not 0",
    ),
    "window of images": (
        changed(VISION, "reuse", {"rule": "WINDOW", "tokens": 1}),
        "reuse",
        "VISION_KV is restored by ALL_PAGES only",
    ),
    "odd int4": (
        changed(
            mha("a", kv_heads=1, head_dim=8, dtype="int4", engine_family="VLLM", quantization="int4"),
            "dims.head_dim",
            7,
        ),
        "tensor_specs[0].shape",
        "two a byte",
    ),
    "stride that the tensors do not make": (
        changed(MHA, "layout.stride_bytes", 2047),
        "layout.stride_bytes",
        "declared 2047, but the tensors make 2048",
    ),
    "stride of nothing": (changed(MHA, "layout.stride_bytes", 0), "layout.stride_bytes", "out of bounds"),
    "empty window": (changed(MHA, "reuse", {"rule": "WINDOW", "tokens": 0}), "reuse.tokens", "out of bounds"),
    "negative window": (
        changed(MHA, "reuse", {"rule": "WINDOW", "tokens": -16}),
        "reuse.tokens",
        "-16 is out of bounds",
    ),
    "window without its tokens": (changed(MHA, "reuse", {"rule": "WINDOW"}), "reuse.tokens", "missing"),
    "checkpoint rule for attention": (
        changed(MHA, "reuse", {"rule": "LAST_CHECKPOINT"}),
        "reuse",
        "MHA_KV is restored by ALL_PAGES or WINDOW only",
    ),
    "page rule for a checkpoint": (
        changed(MAMBA, "reuse", {"rule": "ALL_PAGES"}),
        "reuse",
        "SSM_MAMBA2 is restored by LAST_CHECKPOINT only",
    ),
}

# Python itself refuses these of a call; a decoder has to
DECODED_ONLY: dict[str, Case] = {
    "unknown kind": (
        changed(MHA, "semantic_type", "MHA"),
        "semantic_type",
        "'MHA' is unknown to this version",
    ),
    "no kind": (removed(MHA, "semantic_type"), "semantic_type", "missing"),
    "lineage of a branch": (changed(TOT, "branch_depth", 3), "branch_depth", "unknown field; leave it out"),
    "unknown field": (changed(MHA, "colour", "red"), "colour", "unknown field; leave it out"),
    "no dimensions": (removed(MHA, "dims"), "dims", "missing; it is required"),
}
