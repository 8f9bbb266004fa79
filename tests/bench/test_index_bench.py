"""The suite `index` in its smallest form: that it measures everything and shows it, never how fast it was."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.bench.test_bench import PLACEMENTS, WITHOUT_LMDB, bench, figures

PLACED = (
    "hit_1",
    "hit_1_lmdb",
    "hit_1_c",
    "present_256",
    "present_256_lmdb",
    "pinned_64",
    "pinned_64_lmdb",
    "hit_scale",
    "hit_scale_8",
)
ONCE = ("restart_1m", "restart_1m_failed")
AGAINST = {"hit_1_lmdb": "hit_1", "present_256_lmdb": "present_256"}
"""LMDB's figures that are judged by how many times longer they take than ours."""
SMALLEST = ("index", "--quick", "--runs", "1")
WITHOUT_COMPILER = (
    "import os, sys; os.environ['PATH'] = ''; from nexuskv.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    ended = bench(*SMALLEST, "--json")
    assert ended.returncode == 0, ended.stderr
    return figures(ended)


def test_json_has_every_figure_in_every_placement(measured: dict[str, dict[str, Any]]) -> None:
    placed = {f"{name}_{placement}" for name in PLACED for placement in PLACEMENTS}
    assert set(measured) == {*PLACED, *ONCE, *placed}
    assert all(row["value"] >= 0 for row in measured.values())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("theirs", "ours"), AGAINST.items())
def test_lmdb_is_compared_with_the_same_run(
    measured: dict[str, dict[str, Any]], placement: str, theirs: str, ours: str
) -> None:
    row = measured[f"{theirs}_{placement}"]
    assert row["floor"] == measured[f"{ours}_{placement}"]["value"]
    assert row["ratio"] == pytest.approx(row["value"] / row["floor"])


def test_no_hit_fails_while_the_daemon_dies_and_comes_back(measured: dict[str, dict[str, Any]]) -> None:
    failed = measured["restart_1m_failed"]
    assert (failed["value"], failed["bound"], failed["holds"]) == (0, 0, True)


@pytest.mark.parametrize(
    ("start", "missing", "sentence"),
    [
        (WITHOUT_LMDB, {"hit_1_lmdb", "present_256_lmdb", "pinned_64_lmdb"}, "LMDB was not measured"),
        (WITHOUT_COMPILER, {"hit_1_c"}, "hit_1_c was not measured: there is no C compiler"),
    ],
)
def test_what_cannot_be_measured_here_is_said(start: str, missing: set[str], sentence: str) -> None:
    ended: subprocess.CompletedProcess[str] = bench(*SMALLEST, "--json", start=[sys.executable, "-c", start])
    names = {row["name"] for row in json.loads(ended.stdout)}
    assert {*PLACED, *ONCE} - names == missing
    assert sentence in ended.stderr
