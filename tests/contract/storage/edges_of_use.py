"""Every rule about what is done with profiles (programs, families, descriptors), inside and just outside of it.

Owns those cases, as `edges` does for a profile by itself.
"""

from collections.abc import Callable

from nexuskv.contract.storage import (
    F16,
    F16Ports,
    Int8Ports,
    Profile,
    Required,
    Rule,
    candidates,
    check_coverage,
    describe,
)
from tests.contract.storage.documents import (
    F16_PROFILE,
    INT8_PROFILE,
    Document,
    changed,
    covered,
    f16_profile,
    family,
    inputs,
    int8_profile,
    node,
    plain_profile,
    program,
    read_family,
    read_profile,
    read_program,
    state,
)
from tests.contract.storage.edges import Edge

F16_OP = "operation.causal_paged_attention"
GPT_OSS_OP = "operation.gpt_oss.causal_paged_attention"
INT8_OP = "operation.causal_paged_attention.int8-kv"
KV, SCALES = "value.kv.0", "value.scale.0"


def f16(at: dict[int, str], operation: str = F16_OP, count: int = 12) -> Callable[[], object]:
    """Coverage of the F16 profile by one node."""
    return lambda: covered(F16_PROFILE, node(operation, inputs(at, count)))


def int8(at: dict[int, str], operation: str = INT8_OP, count: int = 12) -> Callable[[], object]:
    """Coverage of the int8 profile by one node."""
    return lambda: covered(INT8_PROFILE, node(operation, inputs(at, count)))


def two(first: str, second: str) -> Callable[[], object]:
    """A program with two nodes of these ids."""
    return lambda: read_program(program(node("op.a", [], first), node("op.a", [], second)))


def two_layers(scales_of_the_second: str) -> Callable[[], object]:
    """Coverage of two int8 layers, the second node with those scales."""
    return lambda: covered(
        int8_profile(2),
        node(INT8_OP, inputs({8: KV, 9: SCALES}), "a"),
        node(INT8_OP, inputs({8: "value.kv.1", 9: scales_of_the_second}), "b"),
    )


PROGRAMS = {
    "two nodes of one id": Edge(Rule.NODE_ID_TWICE, "nodes", two("a", "b"), two("a", "a")),
    "id of a node's input": Edge(
        Rule.BAD_ID,
        "nodes[0].inputs[1]",
        lambda: read_program(program(node("op.a", ["x", "y"]))),
        lambda: read_program(program(node("op.a", ["x", ""]))),
    ),
    "one input for payload and scales": Edge(
        Rule.TABLE_PORTS,
        "scales",
        lambda: Int8Ports(payload=8, scales=9),
        lambda: Int8Ports(payload=8, scales=8),
    ),
    "negative input": Edge(
        Rule.MALFORMED, "payload", lambda: F16Ports(payload=0), lambda: F16Ports(payload=-1)
    ),
    "no input 8": Edge(Rule.PORT_MISSING, "nodes[0].inputs", f16({8: KV}, count=9), f16({}, count=8)),
    "no input 11": Edge(
        Rule.PORT_MISSING, "nodes[0].inputs", f16({11: KV}, GPT_OSS_OP), f16({8: KV}, GPT_OSS_OP, count=11)
    ),
    "no input 9": Edge(
        Rule.PORT_MISSING, "nodes[0].inputs", int8({8: KV, 9: SCALES}, count=10), int8({8: KV}, count=9)
    ),
    "payload that is not declared": Edge(
        Rule.PAYLOAD_UNDECLARED, "nodes[0].inputs[8]", f16({8: KV}), f16({7: KV})
    ),
    "payload at the input of another operation": Edge(
        Rule.PAYLOAD_UNDECLARED, "nodes[0].inputs[11]", f16({11: KV}, GPT_OSS_OP), f16({8: KV}, GPT_OSS_OP)
    ),
    "scales that are not declared": Edge(
        Rule.SCALES_UNDECLARED, "nodes[0].inputs[9]", int8({8: KV, 9: SCALES}), int8({8: KV, 10: SCALES})
    ),
    "payload and scales exchanged": Edge(
        Rule.PORT_CONFLICT, "nodes[0].inputs[8]", int8({8: KV, 9: SCALES}), int8({8: SCALES, 9: KV})
    ),
    "payload for scales": Edge(
        Rule.PORT_CONFLICT, "nodes[0].inputs[9]", int8({8: KV, 9: SCALES}), int8({8: KV, 9: KV})
    ),
    "scales of another layer": Edge(
        Rule.PORT_CONFLICT, "nodes[1].inputs[9]", two_layers("value.scale.1"), two_layers(SCALES)
    ),
    "f16 for an int8 operation": Edge(
        Rule.FORMAT_CONFLICT, "nodes[0].inputs[8]", f16({8: KV}), f16({8: KV}, INT8_OP)
    ),
    "int8 for an f16 operation": Edge(
        Rule.FORMAT_CONFLICT, "nodes[0].inputs[8]", int8({8: KV, 9: SCALES}), int8({8: KV, 9: SCALES}, F16_OP)
    ),
    "layer that nothing reads": Edge(
        Rule.DECLARATION_UNCONSUMED,
        "kv_storage[1]",
        lambda: covered(
            f16_profile(2),
            node(F16_OP, inputs({8: KV}), "a"),
            node(F16_OP, inputs({8: "value.kv.1"}), "b"),
        ),
        lambda: covered(f16_profile(2), node(F16_OP, inputs({8: KV}))),
    ),
    "operation that the table does not list": Edge(
        Rule.DECLARATION_UNCONSUMED,
        "kv_storage[0]",
        lambda: check_coverage(
            read_profile(F16_PROFILE),
            read_program(program(node("operation.mine", [KV]))),
            {"operation.mine": F16Ports(payload=0)},
        ),
        lambda: covered(F16_PROFILE, node("operation.mine", [KV])),
    ),
}

BOTH = family(f16_profile(), int8_profile())


def chosen(of: Document, storage: str, profile_id: str = "") -> Callable[[], object]:
    """The candidates of a family, automatic unless a profile is required."""
    if not profile_id:
        return lambda: candidates(read_family(of), storage)
    return lambda: candidates(read_family(of), storage, Required(profile_id=profile_id))


FAMILIES = {
    "two profiles of one id": Edge(
        Rule.PROFILE_ID_TWICE,
        "profiles",
        lambda: read_family(BOTH),
        lambda: read_family(family(f16_profile(), int8_profile(name="f16"))),
    ),
    "profile that is not there": Edge(
        Rule.PROFILE_UNKNOWN, "profile_id", chosen(BOTH, "f16", "f16"), chosen(BOTH, "f16", "f8")
    ),
    "profile of another format": Edge(
        Rule.PROFILE_FORMAT,
        "profile_id",
        chosen(BOTH, "int8_per_token_head_f32_scale_v1", "int8"),
        chosen(BOTH, "int8_per_token_head_f32_scale_v1", "f16"),
    ),
    "profile without keys and values": Edge(
        Rule.PROFILE_FORMAT,
        "profile_id",
        chosen(family(plain_profile()), "f16", "plain"),
        chosen(family(plain_profile()), "int8_per_token_head_f32_scale_v1", "plain"),
    ),
    "no profile of the format": Edge(
        Rule.NO_CANDIDATE,
        "format",
        chosen(BOTH, "int8_per_token_head_f32_scale_v1"),
        chosen(family(f16_profile(), plain_profile()), "int8_per_token_head_f32_scale_v1"),
    ),
    "no profile of f16": Edge(
        Rule.NO_CANDIDATE,
        "format",
        chosen(family(plain_profile()), "f16"),
        chosen(family(int8_profile()), "f16"),
    ),
    "unknown format": Edge(Rule.MALFORMED, "format", chosen(BOTH, "f16"), chosen(BOTH, "int8")),
    "fault of a profile that is not chosen": Edge(
        Rule.FORMATS_MIXED,
        "profiles[1].kv_storage",
        chosen(family(f16_profile(), int8_profile(2)), "f16"),
        chosen(
            family(
                f16_profile(), changed(int8_profile(2), "kv_storage.1", {"format": "f16", "state": "kv.1"})
            ),
            "f16",
        ),
    ),
}

MIXED = f16_profile(2) | {
    "states": [state("kv.0", "F16", [2, 4, 8], 128), state("kv.1", "F16", [2, 2, 8], 64)]
}


def described(of: Document, page_tokens: int = 16, *states: str) -> Callable[[], object]:
    """The descriptor of a profile's F16 declarations: those named, or all."""

    def build() -> object:
        profile: Profile = read_profile(of)
        declarations = [F16(state=name) for name in states] or None
        return describe(
            profile, "d", page_tokens=page_tokens, engine_family="VLLM", declarations=declarations
        )

    return build


DESCRIPTORS = {
    "no keys and values": Edge(
        Rule.NOTHING_DECLARED, "kv_storage", described(F16_PROFILE), described(plain_profile())
    ),
    "declaration of another profile": Edge(
        Rule.NOT_OF_PROFILE,
        "declarations",
        described(F16_PROFILE, 16, "kv.0"),
        described(F16_PROFILE, 16, "kv.1"),
    ),
    "one declaration as two layers": Edge(
        Rule.STATE_SHARED,
        "declarations",
        described(F16_PROFILE, 16, "kv.0"),
        described(F16_PROFILE, 16, "kv.0", "kv.0"),
    ),
    "two geometries": Edge(
        Rule.GEOMETRIES_MIXED, "declarations", described(MIXED, 16, "kv.1"), described(MIXED)
    ),
    "page of no tokens": Edge(
        Rule.PAGE_TOKENS, "page_tokens", described(F16_PROFILE, 1), described(F16_PROFILE, 0)
    ),
    "page beyond the longest sequence": Edge(
        Rule.PAGE_TOKENS, "page_tokens", described(F16_PROFILE, 4096), described(F16_PROFILE, 4097)
    ),
}
