"""`nexuskv bench` as a shell sees it, in its smallest form: what it prints and leaves, never how fast it was."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = (
    "socket_get",
    "lookup_256",
    "match_256",
    "handles_64",
    "put_64k_single",
    "put_64k_batch",
    "put_1mib",
    "hit_copies",
    "entry_bytes",
    "lookup_scale",
)
NOWHERE = {"hit_copies", "entry_bytes"}  # the same wherever the processes run
UNBOUNDED = {"match_256"}
SMALLEST = ("core", "--quick", "--runs", "1")
PLACEMENTS = ("pinned", "apart", "free") if len(os.sched_getaffinity(0)) > 1 else ("pinned", "free")
WITHOUT_LMDB = (
    "import sys; sys.modules['lmdb'] = None; from nexuskv.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nexuskv.cli.main", "bench", *arguments]


def bench(*arguments: str, start: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    chosen = [*start, "bench", *arguments] if start else command(*arguments)
    return subprocess.run(chosen, capture_output=True, text=True, timeout=100, check=False)


def figures(ended: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(ended.stdout)
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row for row in rows}


@pytest.fixture(scope="module")
def measured() -> subprocess.CompletedProcess[str]:
    return bench(*SMALLEST, "--json", "--check")


def test_json_has_every_figure_in_every_placement(measured: subprocess.CompletedProcess[str]) -> None:
    rows = {name: row for name, row in figures(measured).items() if "_lmdb" not in name}
    placed = {f"{name}_{placement}" for name in NAMES if name not in NOWHERE for placement in PLACEMENTS}
    assert set(rows) == {*NAMES, *placed}
    for name, row in rows.items():
        assert list(row) == ["name", "value", "unit", "floor", "ratio", "bound", "holds"]
        plain = next(plain for plain in NAMES if name in {plain, *(f"{plain}_{each}" for each in PLACEMENTS)})
        assert (row["floor"] is None, row["ratio"] is None) == (plain in NOWHERE, plain in NOWHERE)
        assert (row["bound"] is None, row["holds"] is None) == (plain in UNBOUNDED, plain in UNBOUNDED)
        if row["floor"] is not None:
            assert row["ratio"] == pytest.approx(row["value"] / row["floor"])


def test_check_fails_exactly_when_a_bound_does_not_hold(measured: subprocess.CompletedProcess[str]) -> None:
    rows = figures(measured)
    missed = [name for name in NAMES if rows[name]["holds"] is False]
    assert measured.returncode == bool(missed)
    verdict = measured.stderr.splitlines()[-1]
    assert ("DO NOT HOLD" in verdict) == bool(missed)
    assert all(f"{name} is " in verdict for name in missed)


def test_a_hit_copies_nothing_even_in_the_smallest_form(measured: subprocess.CompletedProcess[str]) -> None:
    hit = figures(measured)["hit_copies"]
    assert (hit["value"], hit["bound"], hit["holds"]) == (0, 0, True)


def test_without_lmdb_it_says_why_there_is_no_rival() -> None:
    ended = bench(*SMALLEST, "--markdown", start=[sys.executable, "-c", WITHOUT_LMDB])
    assert ended.returncode == 0, ended.stderr
    assert "LMDB was not measured: it is not installed" in ended.stdout
    table = [line for line in ended.stdout.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table[2:]] == list(NAMES)
    assert len({line.count("|") for line in table}) == 1
    assert "these figures mean nothing" in ended.stdout


def test_list_measures_nothing() -> None:
    ended = bench("--list", "--json")
    assert ended.returncode == 0
    assert {row["name"] for row in json.loads(ended.stdout)} >= set(NAMES)
    assert "match one page" in bench("--list").stdout


@pytest.mark.parametrize("wrong", [("nonsense",), ("--runs", "0"), ("--runs", "few")])
def test_wrong_usage_is_exit_code_2(wrong: tuple[str, ...]) -> None:
    ended = bench(*wrong)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    with subprocess.Popen(
        command(*SMALLEST, "--json"), env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as process:
        while not list(Path("/dev/shm").glob(f"nexuskv-bench-{process.pid}-*-data-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(60) == code
    assert not list(tmp_path.iterdir())
    assert not list(Path("/dev/shm").glob(f"nexuskv-bench-{process.pid}-*"))
