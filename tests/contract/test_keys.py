"""Page keys: the chain against a reference written from its description, and every kind of token input."""

import struct
from array import array
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.contract import (
    KEY_BYTES,
    MAX_TOKEN_ID,
    PRESETS,
    chain_root,
    content_keys,
    content_root,
    page_keys,
)
from nexuskv.errors import LocalError

ROOT = bytes(range(32))
IDS = st.lists(st.integers(0, MAX_TOKEN_ID), max_size=70)


def reference(root: bytes, ids: list[int], page_tokens: int) -> list[bytes]:
    keys = []
    for page in range(len(ids) // page_tokens):
        tokens = struct.pack(f"<{page_tokens}I", *ids[page * page_tokens : (page + 1) * page_tokens])
        root = blake2b(root + tokens, digest_size=32).digest()
        keys.append(root)
    return keys


@given(IDS, st.integers(1, 20))
def test_keys_are_the_documented_chain(ids: list[int], page_tokens: int) -> None:
    assert page_keys(ROOT, ids, page_tokens) == reference(ROOT, ids, page_tokens)


def test_golden_keys() -> None:
    digest = PRESETS["llama-3-8b-page16"].digest
    root = chain_root(digest, "meta-llama/Meta-Llama-3-8B@8cde5ca", "uid:1000", "")
    assert [key.hex() for key in page_keys(root, range(40), 16)] == GOLDEN_KEYS
    assert root.hex() == GOLDEN_ROOT


def test_the_root_is_the_documented_encoding() -> None:
    parts = [bytes(32), b"model", "Mieter-ü".encode(), b""]
    encoded = b"nexuskv-chain-v1" + b"".join(struct.pack("<I", len(part)) + part for part in parts)
    expected = blake2b(encoded, digest_size=32).digest()
    assert chain_root(bytes(32), "model", "Mieter-ü", "") == expected


@given(IDS, IDS, st.integers(1, 20))
def test_a_common_prefix_has_common_keys(ids: list[int], more: list[int], page_tokens: int) -> None:
    shorter = page_keys(ROOT, ids, page_tokens)
    longer = page_keys(ROOT, ids + more, page_tokens)
    assert longer[: len(shorter)] == shorter
    assert len(longer) == (len(ids) + len(more)) // page_tokens


@given(IDS, st.integers(1, 5), st.integers(0, 20))
def test_a_chain_can_be_continued_from_any_key(ids: list[int], page_tokens: int, at: int) -> None:
    keys = page_keys(ROOT, ids, page_tokens)
    at = min(at, len(keys))
    parent = keys[at - 1] if at else ROOT
    assert keys[at:] == page_keys(parent, ids[at * page_tokens :], page_tokens)


def test_one_token_changes_every_key_from_its_page_on() -> None:
    ids = list(range(64))
    changed = [*ids[:20], 999, *ids[21:]]
    same = [a == b for a, b in zip(page_keys(ROOT, ids, 16), page_keys(ROOT, changed, 16), strict=True)]
    assert same == [True, False, False, False]


def test_roots_keep_all_that_names_a_cache_apart() -> None:
    roots = {
        chain_root(digest, model, tenant, salt)
        for digest in (bytes(32), b"\1" * 32)
        for model in ("", "ab", "abc")
        for tenant in ("", "c", "cd")
        for salt in ("", "d")
    }
    assert len(roots) == 2 * 3 * 3 * 2
    assert chain_root(bytes(32), "ab", "c", "") != chain_root(bytes(32), "a", "bc", "")


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        iter,
        lambda ids: array("I", ids),
        lambda ids: array("q", ids),
        lambda ids: memoryview(array("I", ids)),
        lambda ids: np.array(ids, np.uint32),
        lambda ids: np.array(ids, np.int64),
        lambda ids: np.array(ids, np.uint64),
        lambda ids: np.array(ids, ">i8"),
        lambda ids: np.repeat(np.array(ids), 2)[::2],
        lambda ids: [np.int64(token) for token in ids],
        lambda ids: struct.pack(f"<{len(ids)}I", *ids),
        lambda ids: bytearray(struct.pack(f"<{len(ids)}I", *ids)),
        lambda ids: memoryview(struct.pack(f"<{len(ids)}I", *ids)),
    ],
)
def test_every_form_of_tokens_has_the_same_keys(form: Callable[[list[int]], Any]) -> None:
    ids = [0, 1, 255, 256, 65536, 128_255, 2**31, MAX_TOKEN_ID] * 4
    assert page_keys(ROOT, form(ids), 8) == reference(ROOT, ids, 8)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
def test_narrow_arrays(dtype: str) -> None:
    assert page_keys(ROOT, np.arange(32, dtype=dtype), 16) == reference(ROOT, list(range(32)), 16)


@pytest.mark.parametrize("empty", [[], (), b"", np.array([]), np.array([], np.int64), array("I")])
def test_no_tokens_have_no_keys(empty: Any) -> None:
    assert page_keys(ROOT, empty, 16) == []


def test_tokens_that_fill_no_page_have_no_key() -> None:
    assert page_keys(ROOT, range(15), 16) == []
    assert len(page_keys(ROOT, range(31), 16)) == 1


def test_keys_are_32_bytes() -> None:
    assert {len(key) for key in page_keys(ROOT, range(160), 16)} == {KEY_BYTES} == {32}


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([1, 2, -3], r"token_ids\[2\] is -3; token ids are integers from 0 to 4294967295"),
        ([2**32], r"token_ids\[0\] is 4294967296"),
        ([1, 2**200], r"token_ids\[1\] is"),
        ([1, 2.0], r"token_ids\[1\] is 2.0"),
        (["7"], r"token_ids\[0\] is '7'"),
        ([1, None], r"token_ids\[1\] is None"),
        ("hello", r"token_ids\[0\] is 'h'"),
        (np.array([1, -1]), r"token_ids\[1\] is -1"),
        (np.array([2**32], np.uint64), r"token_ids\[0\] is 4294967296"),
        (np.array([2**63 - 1]), r"token_ids\[0\] is 9223372036854775807"),
        (np.array([1, -1], np.int8), r"token_ids\[1\] is -1"),
        (array("q", [1, -1]), r"token_ids\[1\] is -1"),
        (np.array([1.0]), "dtype float64; token ids are integers"),
        (np.array([True]), "dtype bool"),
        (array("d", [1.0]), "dtype float64"),
        (np.zeros((2, 2), int), "2 dimensions"),
        (np.array(7), "0 dimensions"),
        (b"12345", "5 bytes; u32"),
        (7, "token_ids is 7; pass the ids of one sequence"),
    ],
)
def test_what_is_no_token_id_is_named(ids: Any, sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        page_keys(ROOT, ids, 1)


@pytest.mark.parametrize("page_tokens", [0, -16])
def test_a_page_has_tokens(page_tokens: int) -> None:
    with pytest.raises(LocalError, match="page_tokens"):
        page_keys(ROOT, [1], page_tokens)


@pytest.mark.parametrize("root", [b"", bytes(31), bytes(33)])
def test_a_root_has_32_bytes(root: bytes) -> None:
    with pytest.raises(LocalError, match=f"root has {len(root)} bytes, not 32"):
        page_keys(root, [1], 1)


def test_a_root_is_made_of_a_digest_and_text() -> None:
    with pytest.raises(LocalError, match="digest has 3 bytes"):
        chain_root(b"abc", "", "", "")
    with pytest.raises(LocalError, match="salt is '\\\\ud800'"):
        chain_root(bytes(32), "", "", "\ud800")
    with pytest.raises(LocalError, match="model is None"):
        chain_root(bytes(32), None, "", "")  # type: ignore[arg-type]  # the fault under test


GOLDEN_ROOT = "979e1e4f1c51f4b085adbb252ea254f04862523b86ee457812dd12639744bf2d"
GOLDEN_KEYS = [
    "d0fbad171ba4ef098455e769d69b29bb65529f2337b495b3fb0067b9d182789e",
    "c6e31e4759bdba74f22e8137673b918ab6e32bfefc6eb439585bcf867d39e8ce",
]


# Content


@given(st.binary(max_size=200), st.integers(1, 5))
def test_content_keys_are_the_documented_encoding(content: bytes, pages: int) -> None:
    hashed = blake2b(content, digest_size=32).digest()
    expected = [blake2b(ROOT + hashed + struct.pack("<I", p), digest_size=32).digest() for p in range(pages)]
    assert content_keys(ROOT, content, pages) == expected


def test_the_content_root_is_the_documented_encoding() -> None:
    parts = [bytes(32), b"model", b"tenant", b"salt"]
    encoded = b"nexuskv-content-v1" + b"".join(struct.pack("<I", len(part)) + part for part in parts)
    assert content_root(bytes(32), "model", "tenant", "salt") == blake2b(encoded, digest_size=32).digest()


def test_golden_content_keys() -> None:
    root = content_root(
        PRESETS["qwen2-vl-7b-image448"].digest, "Qwen/Qwen2-VL-7B-Instruct@eed1309", "uid:1000", ""
    )
    assert [key.hex() for key in content_keys(root, b"an image", 2)] == GOLDEN_CONTENT


@pytest.mark.parametrize("change", [{"model": "n"}, {"tenant": "u"}, {"salt": "s"}, {"digest": b"x" * 32}])
def test_the_same_content_elsewhere_has_other_keys(change: dict[str, Any]) -> None:
    same: dict[str, Any] = {"digest": bytes(32), "model": "m", "tenant": "t", "salt": ""}
    assert content_keys(content_root(**(same | change)), b"x") != content_keys(content_root(**same), b"x")


def test_content_may_be_any_contiguous_buffer() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    keys = {content_keys(ROOT, form)[0] for form in (pixels, pixels.tobytes(), bytearray(pixels.tobytes()))}
    assert len(keys) == 1
    with pytest.raises(LocalError, match="content cannot be hashed"):
        content_keys(ROOT, pixels[:, ::2])
    with pytest.raises(LocalError, match="content cannot be hashed"):
        content_keys(ROOT, "text")  # type: ignore[arg-type]  # the fault under test


@pytest.mark.parametrize("pages", [0, -1, 2**32])
def test_an_input_has_pages(pages: int) -> None:
    with pytest.raises(LocalError, match="pages is"):
        content_keys(ROOT, b"", pages)


GOLDEN_CONTENT = [
    "1a01187a575a550028a41384ddfb174574e457d15a86a070f8b24d4ca50110c8",
    "7495938f97845ed3aebb6e95cccca4052e654f43738163357e1da4b78b59e0c1",
]
