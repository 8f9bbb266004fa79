"""The figures of groups in their smallest form: that they are measured against one member, never how fast it was."""

import pytest

from tests.bench.test_bench import PLACEMENTS, bench, figures


def test_groups_are_measured_against_one_member_in_every_placement() -> None:
    ended = bench("contract", "--quick", "--runs", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    rows = figures(ended)
    for name in ("group_match", "group_match_hybrid"):
        for row in (rows[name], *(rows[f"{name}_{placement}"] for placement in PLACEMENTS)):
            assert (row["unit"], row["bound"]) == ("us", 4)
            assert row["ratio"] == pytest.approx(row["value"] / row["floor"])
