"""The suite `tcp` in its smallest form: that it measures everything and shows it, never how fast it was."""

import json
import shutil
import sys
from typing import Any

import pytest

from tests.bench.test_bench import PLACEMENTS, bench, figures

RATES = {"tcp_1mib", "tcp_64k"}
LATENCIES = {"tcp_page_latency", "tcp_page_latency_whole"}
UNDER_PULL = {"local_under_pull", "local_under_pull_p999"}
SMALLEST = ("tcp", "--quick", "--runs", "1", "--json")
WITHOUT_IPERF = (
    "import os, sys; os.environ['PATH'] = ''; from nexuskv.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed (Debian and Ubuntu: apt-get install iperf3)")
    ended = bench(*SMALLEST)
    assert ended.returncode == 0, ended.stderr
    return figures(ended)


def test_json_has_every_figure_in_every_placement(measured: dict[str, dict[str, Any]]) -> None:
    names = RATES | LATENCIES | UNDER_PULL
    assert set(measured) == names | {f"{name}_{placement}" for name in names for placement in PLACEMENTS}
    for row in measured.values():
        assert row["ratio"] == pytest.approx(row["value"] / row["floor"])


@pytest.mark.skipif("apart" not in PLACEMENTS, reason="there is one CPU only")
def test_what_is_judged_is_two_cpus(measured: dict[str, dict[str, Any]]) -> None:
    for name in RATES | LATENCIES:
        assert measured[name]["value"] == measured[f"{name}_apart"]["value"]


def test_without_iperf_its_package_is_named() -> None:
    ended = bench(*SMALLEST, start=[sys.executable, "-c", WITHOUT_IPERF])
    names = {row["name"] for row in json.loads(ended.stdout)}
    assert names & (RATES | LATENCIES | UNDER_PULL) == LATENCIES | UNDER_PULL
    assert "install the package iperf3" in ended.stderr
