"""Which pages restore a prefix: each rule against a search of all boundaries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.contract import AllPages, LastCheckpoint, Reuse, Window, usable

YES, NO = True, False


@pytest.mark.parametrize(
    ("present", "pages"),
    [
        ([], range(0)),
        ([NO], range(0)),
        ([YES, YES, YES], range(3)),
        ([YES, YES, NO, YES], range(2)),
        ([NO, YES, YES], range(0)),
    ],
)
def test_attention_needs_every_page(present: list[bool], pages: range) -> None:
    assert usable(AllPages(), present, 16) == pages


@pytest.mark.parametrize(
    ("present", "pages"),
    [
        ([], range(0)),
        ([NO, NO], range(0)),
        ([NO, NO, YES, NO], range(2, 3)),
        ([YES, NO, YES, YES], range(3, 4)),
    ],
)
def test_a_recurrent_state_needs_its_last_checkpoint(present: list[bool], pages: range) -> None:
    result = usable(LastCheckpoint(), present, 16)
    assert result == pages
    assert result.stop == pages.stop


@pytest.mark.parametrize(
    ("tokens", "present", "pages"),
    [
        (32, [NO, NO, YES, YES, NO], range(2, 4)),
        (33, [NO, NO, YES, YES, NO], range(0)),
        (17, [YES, NO, YES, YES, YES], range(3, 5)),
        (16, [YES, NO, YES], range(2, 3)),
        (1, [YES, NO, YES], range(2, 3)),
        (64, [YES, YES, NO, YES], range(2)),
        (2**63 - 1, [YES, YES, NO, YES], range(2)),
        (64, [], range(0)),
    ],
)
def test_a_window_needs_its_last_pages(tokens: int, present: list[bool], pages: range) -> None:
    result = usable(Window(tokens=tokens), present, 16)
    assert result == pages
    assert result.stop == pages.stop


def needed(reuse: Reuse, boundary: int, page_tokens: int) -> range:
    """The pages that a boundary needs, straight from the rule."""
    if isinstance(reuse, LastCheckpoint):
        return range(boundary - 1, boundary)
    if isinstance(reuse, Window):
        return range(max(0, (boundary * page_tokens - reuse.tokens) // page_tokens), boundary)
    return range(boundary)


RULES = st.one_of(
    st.just(AllPages()), st.just(LastCheckpoint()), st.builds(Window, tokens=st.integers(1, 200))
)


@given(RULES, st.lists(st.booleans(), max_size=40), st.integers(1, 20))
def test_it_is_the_longest_boundary_there_is(reuse: Reuse, present: list[bool], page_tokens: int) -> None:
    boundaries = range(len(present), 0, -1)
    pages = (needed(reuse, boundary, page_tokens) for boundary in boundaries)
    expected = next((wanted for wanted in pages if all(present[page] for page in wanted)), range(0))
    result = usable(reuse, present, page_tokens)
    assert result == expected
    assert result.stop == expected.stop


def test_any_sequence_of_truths_will_do() -> None:
    expected = usable(AllPages(), [True, True, False], 16)
    assert usable(AllPages(), (True, True, False), 16) == expected
    assert usable(AllPages(), np.array([True, True, False]), 16) == expected
    assert usable(AllPages(), (page < 2 for page in range(3)), 16) == expected
