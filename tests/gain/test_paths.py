"""What fetching costs: a path's latency and bandwidth follow what is observed, and shared memory is measured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexuskv
from nexuskv.gain import MeasuredPath, Paths


def test_a_path_costs_its_latency_and_its_bytes() -> None:
    path = MeasuredPath("tcp", 50e-6, 4e9)
    assert path.seconds(1, 0) == 50e-6
    assert path.seconds(9, 4_000_000) == pytest.approx(1.05e-3)


@pytest.mark.parametrize("factor", [(10.0, 10.0), (0.1, 0.1), (5.0, 0.2), (0.2, 5.0)])
def test_small_and_large_transfers_teach_latency_and_bandwidth(factor: tuple[float, float]) -> None:
    latency, bandwidth = 20e-6, 5e9
    path = MeasuredPath("rdma", latency * factor[0], bandwidth * factor[1])
    for _ in range(200):
        for nbytes in (0, 64 << 10, 16 << 20):
            path.observe(nbytes, latency + nbytes / bandwidth)
    assert path.latency_seconds == pytest.approx(latency, rel=0.01)
    assert path.bytes_per_second == pytest.approx(bandwidth, rel=0.01)


def test_one_outlier_changes_little() -> None:
    path = MeasuredPath("rdma", 20e-6, 5e9)
    path.observe(0, 100.0)
    assert path.latency_seconds < 40e-6
    assert path.bytes_per_second == pytest.approx(5e9)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.floats(1e-12, 1e6))))
def test_neither_becomes_zero_or_negative(observed: list[tuple[int, float]]) -> None:
    path = MeasuredPath("tcp", 50e-6, 4e9)
    for nbytes, seconds in observed:
        path.observe(nbytes, seconds)
    assert 0 < path.latency_seconds < math.inf
    assert 0 < path.bytes_per_second < math.inf


@pytest.mark.parametrize(("nbytes", "seconds"), [(-1, 1.0), (1, 0.0), (1, -1.0), (1, math.nan)])
def test_what_is_no_transfer_is_refused(nbytes: int, seconds: float) -> None:
    with pytest.raises(nexuskv.LocalError, match="is no transfer"):
        MeasuredPath("tcp", 1.0, 1.0).observe(nbytes, seconds)


@pytest.mark.parametrize(("latency", "bandwidth"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0)])
def test_a_path_takes_time(latency: float, bandwidth: float) -> None:
    with pytest.raises(nexuskv.LocalError, match="give measured, positive numbers"):
        MeasuredPath("tcp", latency, bandwidth)


def test_shared_memory_is_measured_once() -> None:
    paths = Paths()
    path = paths.shared_memory
    assert paths.shared_memory is path
    assert 1e-9 < path.latency_seconds < 1
    assert 1e6 < path.bytes_per_second < 1e13
