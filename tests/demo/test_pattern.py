"""The pattern must notice every mix-up that a cache could make."""

import numpy as np
import numpy.typing as npt
import pytest

from nexuskv.contract import mha
from nexuskv.demo.pattern import Pattern

DESCRIPTOR = mha(
    "pattern", layers=2, kv_heads=2, head_dim=16, page_tokens=8, dtype="bfloat16", engine_family="VLLM"
)
ONE, OTHER = bytes(range(32)), bytes(range(1, 33))

Page = dict[str, npt.NDArray[np.generic]]


def filled(pattern: Pattern, key: bytes) -> Page:
    page: Page = {p.name: np.zeros(p.shape, p.dtype) for p in DESCRIPTOR.page_layout.tensors}
    pattern.fill(page.__getitem__, key)
    return page


@pytest.fixture
def pattern() -> Pattern:
    return Pattern(DESCRIPTOR)


def test_a_page_is_recognised_by_another_process_too(pattern: Pattern) -> None:
    assert Pattern(DESCRIPTOR).wrong_tensors(filled(pattern, ONE).__getitem__, ONE) == []


def test_the_page_of_another_key_differs_in_every_tensor(pattern: Pattern) -> None:
    assert pattern.wrong_tensors(filled(pattern, ONE).__getitem__, OTHER) == ["key", "value"]


def test_swapped_tensors_are_noticed(pattern: Pattern) -> None:
    page = filled(pattern, ONE)
    page["key"], page["value"] = page["value"], page["key"]
    assert pattern.wrong_tensors(page.__getitem__, ONE) == ["key", "value"]


def test_swapped_layers_are_noticed(pattern: Pattern) -> None:
    page = filled(pattern, ONE)
    page["value"] = page["value"][::-1].copy()
    assert pattern.wrong_tensors(page.__getitem__, ONE) == ["value"]


@pytest.mark.parametrize("place", [0, 1, 700, -1])
def test_one_flipped_bit_is_noticed(pattern: Pattern, place: int) -> None:
    page = filled(pattern, ONE)
    page["key"].view(np.uint8).reshape(-1)[place] ^= 1
    assert pattern.wrong_tensors(page.__getitem__, ONE) == ["key"]
