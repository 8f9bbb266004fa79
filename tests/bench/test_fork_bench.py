"""The figures of forks in their smallest form: that they are measured, never how fast."""

from tests.bench.test_bench import PLACEMENTS, bench, figures


def test_forks_are_measured_in_every_placement() -> None:
    ended = bench("contract", "--quick", "--runs", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    measured = figures(ended)
    assert {"fork", "fork_bytes", *(f"fork_{placement}" for placement in PLACEMENTS)} <= set(measured)
    assert measured["fork"]["ratio"] > 0
    assert (measured["fork_bytes"]["value"], measured["fork_bytes"]["holds"]) == (0, True)
