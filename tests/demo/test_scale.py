"""The demo cuts the model down to the machine, as little as it must, and refuses what cannot work."""

import pytest

from nexuskv.data import mooncake_slice
from nexuskv.demo.ideal import Survey
from nexuskv.demo.scale import MOST_MEMORY, TooSmall, default_memory, plan
from nexuskv.demo.trace import Trace

GIB, MIB = 2**30, 2**20


@pytest.fixture(scope="module")
def survey() -> Survey:
    return Survey(Trace(mooncake_slice()))


def test_a_large_machine_keeps_the_whole_model(survey: Survey) -> None:
    chosen = plan(survey, 2048 * GIB)
    assert (chosen.layers, chosen.heads, chosen.head_dim, chosen.fraction) == (32, 8, 128, 1)
    assert chosen.descriptor.page_bytes == 64 * MIB
    assert chosen.fits


def test_all_blocks_fit_when_heads_are_dropped(survey: Survey) -> None:
    chosen = plan(survey, 6 * GIB)
    assert chosen.fits
    assert chosen.descriptor.page_bytes * survey.distinct <= 6 * GIB
    assert chosen.descriptor.page_bytes * survey.distinct * 2 > 6 * GIB // 2
    assert chosen.fraction * chosen.descriptor.page_bytes == 64 * MIB


def test_too_little_memory_for_all_keeps_whole_heads_and_evicts(survey: Survey) -> None:
    chosen = plan(survey, GIB)
    assert (chosen.layers, chosen.heads, chosen.head_dim) == (1, 1, 128)
    assert not chosen.fits


def test_a_tiny_machine_cuts_heads_so_that_a_few_prompts_fit(survey: Survey) -> None:
    chosen = plan(survey, 64 * MIB)
    assert chosen.head_dim < 128
    assert 4 * survey.longest * chosen.descriptor.page_bytes <= 64 * MIB


def test_a_budget_below_a_few_prompts_is_refused_with_what_is_needed(survey: Survey) -> None:
    with pytest.raises(TooSmall, match="give --memory 17MiB or more"):
        plan(survey, MIB)


def test_what_the_refusal_asks_for_is_enough(survey: Survey) -> None:
    assert plan(survey, 17 * MIB).head_dim == 8


def test_the_default_leaves_room_for_others() -> None:
    assert 0 < default_memory() <= MOST_MEMORY
