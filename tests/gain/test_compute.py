"""What computing costs: a fit of the prefills an engine reports finds the cost it was made with."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexuskv
from nexuskv.contract import PRESETS
from nexuskv.gain import ComputeCost, Gain, Growth, Learned, Paths

LLAMA = PRESETS["llama-3-8b-page16"]


def test_declared_costs_have_a_linear_and_a_quadratic_term() -> None:
    cost = ComputeCost(1e-4, 2e-9)
    assert cost.seconds(0) == 0
    assert cost.seconds(1000) == pytest.approx(0.1 + 0.002)


@given(
    a=st.floats(0, 1e-2), q=st.floats(0, 1e-7), before=st.integers(0, 1 << 20), more=st.integers(0, 1 << 20)
)
def test_more_tokens_cost_what_the_longer_prefill_costs_more(
    a: float, q: float, before: int, more: int
) -> None:
    cost = ComputeCost(a, q)
    whole = cost.seconds(before + more)
    assert cost.seconds(before) + cost.seconds(more, after=before) == pytest.approx(whole)


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_a_declared_cost_is_a_number_of_seconds(value: float) -> None:
    gain = Gain(LLAMA, Paths())
    with pytest.raises(nexuskv.LocalError, match="seconds_per_token is"):
        gain.declare(value)
    with pytest.raises(nexuskv.LocalError, match="seconds_per_token_squared is"):
        gain.declare(0, value)
    assert gain.known is None


@given(
    a=st.floats(1e-6, 1e-2),
    q=st.floats(1e-12, 1e-7),
    prefills=st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 100_000)), max_size=40),
)
def test_exact_prefills_are_fitted_exactly(a: float, q: float, prefills: list[tuple[int, int]]) -> None:
    learned, truth = Learned(Growth.QUADRATIC), ComputeCost(a, q)
    for tokens, start in [(1000, 0), (30_000, 0), *prefills]:
        learned.observe(tokens, truth.seconds(start + tokens) - truth.seconds(start), start)
    assert learned.cost.seconds(20_000) == pytest.approx(truth.seconds(20_000), rel=1e-3)


def test_attention_is_learned_from_long_prefills() -> None:
    learned = Learned(Growth.QUADRATIC)
    for tokens in (1024, 4096, 16_384, 65_536):
        learned.observe(tokens, 1e-4 * tokens + 2e-9 * tokens**2)
    assert learned.cost.seconds(131_072) == pytest.approx(13.1072 + 34.36, rel=1e-3)


def test_a_recurrence_has_no_quadratic_term_whatever_is_observed() -> None:
    learned = Learned(Growth.LINEAR)
    for tokens in (1024, 65_536):
        learned.observe(tokens, 1e-4 * tokens + 2e-9 * tokens**2)
    assert learned.cost.seconds_per_token_squared == 0


def test_prefills_of_one_length_give_a_mean() -> None:
    learned = Learned(Growth.QUADRATIC)
    for seconds in (0.9, 1.1, 1.0):
        learned.observe(1000, seconds)
    assert learned.cost.seconds_per_token == pytest.approx(1e-3)
    assert learned.cost.seconds_per_token_squared == 0


@pytest.mark.parametrize(
    ("shorter", "longer"), [(1.0, 1.0), (1.0, 400.0)], ids=["cheaper a token", "dearer than a square"]
)
def test_no_term_becomes_negative(shorter: float, longer: float) -> None:
    learned = Learned(Growth.QUADRATIC)
    learned.observe(1000, shorter)
    learned.observe(10_000, longer)
    cost = learned.cost
    assert min(cost.seconds_per_token, cost.seconds_per_token_squared) >= 0
    assert cost.seconds(10_000) > 0


def test_a_device_that_became_faster_is_noticed() -> None:
    learned = Learned(Growth.QUADRATIC)
    for _ in range(50):
        learned.observe(1000, 1.0)
    for _ in range(100):
        learned.observe(1000, 0.1)
    assert learned.cost.seconds(1000) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    ("tokens", "seconds", "start"),
    [(0, 1.0, 0), (math.nan, 1.0, 0), (1, 0.0, 0), (1, math.nan, 0), (1, math.inf, 0), (1, 1.0, -1)],
)
def test_what_is_no_prefill_is_refused(tokens: int, seconds: float, start: int) -> None:
    with pytest.raises(nexuskv.LocalError, match="is no prefill"):
        Learned(Growth.LINEAR).observe(tokens, seconds, start)


def test_what_was_measured_counts_more_than_what_was_said() -> None:
    gain = Gain(LLAMA, Paths())
    with pytest.raises(nexuskv.CostUnknown, match=r"gain\.declare"):
        _ = gain.cost
    gain.declare(1.0)
    assert gain.cost.seconds(10) == 10
    gain.observe(1000, 2.0)
    assert gain.cost.seconds(1000) == pytest.approx(2.0)
