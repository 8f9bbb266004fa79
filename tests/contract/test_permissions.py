"""What each compatibility flag permits, by the descriptor alone."""

from collections.abc import Callable

import pytest

from nexuskv.contract import (
    PRESETS,
    AnyDescriptor,
    Flag,
    chain_root,
    exact_keys,
    mha,
    page_keys,
    permissions,
    vision,
)
from nexuskv.errors import FlagMissing

ROOT = chain_root(bytes(32), "m", "t", "")


def attention(*flags: str) -> AnyDescriptor:
    return mha("a", kv_heads=1, head_dim=8, dtype="float16", engine_family="VLLM", compatibility_flags=flags)


def image(*flags: str) -> AnyDescriptor:
    return vision(
        "v", grid_height=2, grid_width=2, key_dim=8, dtype="float16", engine_family="VLLM",
        compatibility_flags=flags,
    )  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_the_flags_of_the_presets(name: str) -> None:
    expected = {Flag.EXACT_REUSE, Flag.PREFIX_REUSE, Flag.ZERO_COPY_RDMA}
    if PRESETS[name].semantic_type == "TOT_BRANCH":
        expected.add(Flag.COW_BRANCH)
    if PRESETS[name].semantic_type == "VISION_KV":
        expected.remove(Flag.PREFIX_REUSE)
    assert PRESETS[name].compatibility_flags == expected


REFUSED: dict[str, tuple[Callable[[AnyDescriptor], None], AnyDescriptor, AnyDescriptor, str]] = {
    "reuse": (
        permissions.require_reuse, attention("COW_BRANCH"), attention("EXACT_REUSE"), "EXACT_REUSE and PREFIX_REUSE",
    ),
    "groups": (
        permissions.require_prefix_reuse, attention("EXACT_REUSE"), attention("PREFIX_REUSE"), "PREFIX_REUSE",
    ),
    "branches": (permissions.require_branching, attention("PREFIX_REUSE"), attention("COW_BRANCH"), "COW_BRANCH"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_the_flag_and_the_descriptor(what: str) -> None:
    require, without, having, flags = REFUSED[what]
    with pytest.raises(
        FlagMissing, match=f"^a has no {flags} among its compatibility_flags, so .*: declare it"
    ):
        require(without)
    require(having)


@pytest.mark.parametrize(
    ("descriptor", "whole"),
    [
        (attention("EXACT_REUSE"), True),
        (attention("PREFIX_REUSE"), False),
        (attention("EXACT_REUSE", "PREFIX_REUSE"), False),
        (image("EXACT_REUSE"), False),
        (image(), True),
    ],
)
def test_tokens_without_prefix_reuse_are_whole_or_nothing(descriptor: AnyDescriptor, *, whole: bool) -> None:
    assert permissions.is_whole_or_nothing(descriptor) == whole


def test_rdma_takes_its_flag_and_other_transports_take_none() -> None:
    assert not permissions.may_travel(attention(), "rdma")
    assert permissions.may_travel(attention("ZERO_COPY_RDMA"), "rdma")
    assert permissions.may_travel(attention(), "tcp")


def test_exact_keys_are_of_one_input_alone() -> None:
    """No key is shared with an input that is longer, shorter, or differs behind its last full page."""
    inputs = [range(8), range(9), range(10), range(12), [*range(9), 99]]
    found = [exact_keys(ROOT, tokens, 4) for tokens in inputs]
    assert [len(keys) for keys in found] == [2, 2, 2, 3, 2]
    every = [key for keys in found for key in keys] + page_keys(ROOT, range(12), 4)
    assert len(set(every)) == len(every)


def test_golden_exact_keys() -> None:
    assert [key.hex() for key in exact_keys(ROOT, range(9), 4)] == GOLDEN_EXACT


GOLDEN_EXACT = [
    "5dc25036a2e60337b974df1572185d4b7ce40e26bdb77af6e13f16045f0b4da0",
    "f175f491d96decbb0d43cf8d80067a9cb4eb6f9db215024e0ddb67d40d6143b8",
]
