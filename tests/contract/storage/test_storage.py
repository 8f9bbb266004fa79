"""What storage declarations answer: formats, JSON, coverage, candidates, descriptors."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.contract import Role, Scheme, slot_bytes
from nexuskv.contract.storage import (
    F16,
    OPERATIONS,
    Family,
    Format,
    Int8Ports,
    Profile,
    Program,
    Required,
    TokenScaled,
    arena_bytes,
    candidates,
    describe,
    from_json,
    to_json,
    validate,
)
from nexuskv.contract.storage.states import Part
from nexuskv.errors import LocalError, StorageError
from tests.contract.storage.documents import (
    BOUNDARY,
    F16_PROFILE,
    INT8,
    INT8_PROFILE,
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
    validated,
)
from tests.contract.storage.edges import ENTIRE


def test_validation_answers_the_format_or_none() -> None:
    assert validated(f16_profile(61)) is Format.F16
    assert validated(int8_profile(61)) is Format.INT8_PER_TOKEN_HEAD_F32_SCALE_V1
    assert validated(plain_profile()) is None
    assert validated({"id": "empty"}) is None


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (read_profile(INT8_PROFILE), Profile),
        (read_family(family(f16_profile(2), plain_profile())), Family),
        (read_program(program(node("op.a", ["x"]))), Program),
    ],
)
def test_json_comes_back_as_it_went(part: Part, kind: type[Part]) -> None:
    assert from_json(to_json(part), kind) == part
    assert to_json(from_json(to_json(part), kind)) == to_json(part)


def test_what_is_built_in_code_equals_what_is_read() -> None:
    read = read_profile(F16_PROFILE)
    state = msgspec.structs.replace(
        read.states[0], lifetime="sequence", capacity=TokenScaled(bytes_per_token=128, maximum_tokens=4096)
    )
    assert Profile(id="f16", states=(state,), kv_storage=(F16(state="kv.0"),)) == read


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b'{"id": 1}', b'{"id": "a"} x', b"[" * 100_000])
def test_what_is_no_declaration_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        from_json(data, Profile)


@given(st.data())
def test_damaged_json_is_a_profile_or_a_refusal(data: st.DataObject) -> None:
    damaged = bytearray(to_json(read_profile(INT8_PROFILE)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        survivor = from_json(bytes(damaged), Profile)
        validate(survivor)
    except StorageError:
        return
    assert from_json(to_json(survivor), Profile) == survivor


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_finds_its_states(operation: str) -> None:
    ports = OPERATIONS[operation]
    at = dict(zip(ports.ports, ("value.kv.0", "value.scale.0"), strict=False))
    profile = INT8_PROFILE if isinstance(ports, Int8Ports) else F16_PROFILE
    assert covered(profile, node(operation, inputs(at))) is ports.format


def test_the_table_is_the_published_one() -> None:
    assert {name: ports.ports for name, ports in OPERATIONS.items()} == {
        "operation.causal_paged_attention": (8,),
        "operation.causal_paged_attention.f32-master": (8,),
        "operation.hybrid_vnorm_causal_paged_attention": (8,),
        "operation.gpt_oss.causal_paged_attention": (11,),
        "operation.causal_paged_attention.int8-kv": (8, 9),
        "operation.causal_paged_attention.f32-master.int8-kv": (8, 9),
    }


def test_other_operations_are_passed_over_whatever_they_read() -> None:
    others = [node("operation.rms_norm", ["value.kv.0"], "a"), node("operation.matmul", [], "b")]
    read = node("operation.causal_paged_attention", inputs({8: "value.kv.0"}), "c")
    assert covered(F16_PROFILE, *others, read) is Format.F16
    assert covered(plain_profile(), *others) is None


def test_two_nodes_may_read_one_state() -> None:
    first, second = (
        node("operation.causal_paged_attention", inputs({8: "value.kv.0"}), name) for name in ("a", "b")
    )
    assert covered(F16_PROFILE, first, second) is Format.F16


def test_candidates_keep_the_order_of_the_family() -> None:
    found = read_family(family(plain_profile(), int8_profile(), f16_profile(), f16_profile(2, name="more")))
    assert [profile.id for profile in candidates(found, "f16")] == ["plain", "f16", "more"]
    assert [profile.id for profile in candidates(found, INT8)] == ["int8"]
    assert [profile.id for profile in candidates(found, "f16", Required(profile_id="more"))] == ["more"]


def test_a_declaration_becomes_a_page_of_keys_and_values() -> None:
    d = describe(read_profile(F16_PROFILE), "f16-page16", page_tokens=16, engine_family="VLLM")
    assert [(t.name, t.role, t.shape) for t in d.bound_tensors] == [
        ("key", Role.KEY, (16, 4, 8)),
        ("value", Role.VALUE, (16, 4, 8)),
    ]
    assert d.page_bytes == 16 * 128
    assert d.quantization.scheme is Scheme.NONE


@pytest.mark.parametrize(
    ("checkpoints", "flags"),
    [
        ([BOUNDARY, BOUNDARY], {"EXACT_REUSE", "PREFIX_REUSE", "ZERO_COPY_RDMA"}),
        ([BOUNDARY, ENTIRE], {"EXACT_REUSE", "ZERO_COPY_RDMA"}),
        ([ENTIRE, {"kind": "unsupported"}], {"ZERO_COPY_RDMA"}),
    ],
    ids=["prefix", "whole input", "none"],
)
def test_the_strictest_checkpoint_of_a_page_says_how_it_is_reused(
    checkpoints: list[dict[str, str]], flags: set[str]
) -> None:
    document = f16_profile(2)
    for at, checkpoint in enumerate(checkpoints):
        document = changed(document, f"states.{at}.checkpoint", checkpoint)
    d = describe(read_profile(document), "d", page_tokens=16, engine_family="VLLM")
    assert d.compatibility_flags == flags


def test_an_int8_declaration_brings_its_scales() -> None:
    d = describe(read_profile(int8_profile(3)), "int8-page16", page_tokens=16, engine_family="SGLANG")
    assert {t.name: (t.dtype.value, t.shape) for t in d.bound_tensors} == {
        "key": ("int8", (3, 16, 4, 8)),
        "value": ("int8", (3, 16, 4, 8)),
        "key_scale": ("float32", (3, 16, 4)),
        "value_scale": ("float32", (3, 16, 4)),
    }
    assert d.page_bytes == 3 * 16 * (64 + 32)
    assert d.quantization.scheme is Scheme.INT8_PER_TOKEN_HEAD


def test_the_arena_has_room_for_the_longest_sequence() -> None:
    profile = read_profile(F16_PROFILE)
    d = describe(profile, "d", page_tokens=100, engine_family="VLLM")
    assert arena_bytes(d, profile) == 41 * slot_bytes(12_800)
    assert arena_bytes(d, profile, sequences=3) == 3 * 41 * slot_bytes(12_800)
    with pytest.raises(LocalError, match="give 1 or more"):
        arena_bytes(d, profile, sequences=0)
