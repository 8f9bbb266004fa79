"""The hit protocol over all interleavings; and that the model notices each ordering that is taken away."""

from dataclasses import replace

import pytest

from tests.native.model import Protocol, ViolationError, explore


@pytest.mark.parametrize("in_order", [True, False], ids=["TSO", "PSO"])
def test_no_interleaving_breaks_a_pin(in_order: bool) -> None:
    assert explore(Protocol(), in_order=in_order) > 100_000


@pytest.mark.parametrize("in_order", [True, False], ids=["TSO", "PSO"])
def test_a_page_that_is_put_back_because_it_is_pinned_breaks_none(in_order: bool) -> None:
    assert explore(Protocol(revive=True), in_order=in_order) > 100_000
    with pytest.raises(ViolationError, match="overwritten"):
        explore(Protocol(revive=True, writer_fence=False), in_order=in_order)


@pytest.mark.parametrize("in_order", [True, False], ids=["TSO", "PSO"])
@pytest.mark.parametrize("part", ["reader_fence", "writer_fence", "high_water_before_pin", "recheck"])
def test_each_part_of_the_protocol_is_needed(part: str, in_order: bool) -> None:
    with pytest.raises(ViolationError, match="overwritten"):
        explore(replace(Protocol(), **{part: False}), in_order=in_order)


def test_the_release_that_publishes_is_needed_where_stores_overtake_each_other() -> None:
    without = Protocol(live_is_release=False)

    with pytest.raises(ViolationError):
        explore(without, in_order=False)
    assert explore(without, in_order=True) > 0  # x86 keeps stores in order by itself
