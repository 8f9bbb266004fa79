"""The suite `contract` in its smallest form: that it measures everything and shows it, never how fast it was."""

import re
from typing import Any

import pytest

from tests.bench.test_bench import bench, figures

FLOORED = {"page_keys", "int8_quantize", "int8_dequantize"}
OTHERS = {"descriptor_digest", "group_match", "group_match_hybrid", "fork", "fork_bytes"}
SMALLEST = ("contract", "--quick", "--runs", "1")


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    ended = bench(*SMALLEST, "--json")
    assert ended.returncode == 0, ended.stderr
    return figures(ended)


def test_json_has_every_figure(measured: dict[str, dict[str, Any]]) -> None:
    assert {re.sub("_(pinned|apart|free)$", "", name) for name in measured} == FLOORED | OTHERS
    assert all(row["value"] > 0 for name, row in measured.items() if name != "fork_bytes")
    assert measured["fork_bytes"]["value"] == 0


@pytest.mark.parametrize("name", FLOORED)
def test_they_are_judged_against_bare_calls_of_the_same_run(
    measured: dict[str, dict[str, Any]], name: str
) -> None:
    row = measured[name]
    assert row["bound"] == 0.5
    assert row["ratio"] == pytest.approx(row["value"] / row["floor"])


def test_people_see_value_floor_and_ratio() -> None:
    ended = bench(*SMALLEST, "--markdown")
    assert ended.returncode == 0, ended.stderr
    (row,) = (line for line in ended.stdout.splitlines() if "page_keys" in line)
    assert "M tokens/s = " in row
    assert " x |" in row
