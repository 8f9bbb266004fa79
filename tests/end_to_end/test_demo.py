"""`nexuskv demo`, the main job on real input: a real daemon, real engines and real SIGKILL; few requests."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nexuskv
from nexuskv.data import mooncake_slice
from nexuskv.demo.engine import MODEL
from nexuskv.demo.ideal import Survey
from nexuskv.demo.processes import DemoFailed, EngineProcess
from nexuskv.demo.run import Demo
from nexuskv.demo.scale import Plan, plan
from nexuskv.demo.trace import Trace, TraceRequest, token_ids
from nexuskv.demo.wire import Recall, Serve, Served
from tests.support.daemon import running

MIB = 2**20


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nexuskv.cli.main", "demo", *arguments]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=100, check=False)


def report(*arguments: str) -> dict[str, Any]:
    ended = demo("--json", *arguments)
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_everything_that_was_served_is_there_after_the_engines_were_killed() -> None:
    result = report("--requests", "45", "--memory", "512MiB")
    survey = Survey(Trace(mooncake_slice(), 45))
    assert result["scale"]["everything_fits"]
    assert result["served"]["blocks_hit"] == survey.hit_blocks
    assert result["served"]["tokens_reused"] == survey.hit_tokens
    assert result["ideal_hit_rate"] == survey.hit_rate == result["served"]["hit_rate"]
    assert [result[name]["requests"] for name in ("engine_a", "engine_b", "engine_c")] == [15, 30, 45]
    assert result["engine_c"]["hit_rate"] == 1.0
    assert result["engine_c"]["blocks_stored"] == result["engine_c"]["bytes_copied"] == 0
    after = result["after_kill"]
    assert (after["held"] > 0, after["abandoned"]) == (True, 8)
    assert (after["resident"], after["evicted"]) == (survey.distinct, 0)
    assert (after["pinned"], after["writing"]) == (0, 0)


def test_under_eviction_what_stays_is_whole() -> None:
    result = report("--requests", "90", "--memory", "128MiB")
    assert not result["scale"]["everything_fits"]
    assert result["after_kill"]["evicted"] > 0
    assert 0 < result["engine_c"]["hit_rate"] < 1
    assert result["served"]["hit_rate"] <= result["ideal_hit_rate"]


def test_says_in_words_what_it_did() -> None:
    ended = demo("--requests", "12", "--memory", "256MiB")
    assert ended.returncode == 0, ended.stderr
    words = " ".join(ended.stdout.split())
    assert "12 requests, " in words
    assert "Llama-3-8B geometry scaled to this machine: " in words
    assert "copied by a hit 0 B 0 B 0 B 0 B" in words
    assert "unlimited cache hits" in words


def test_takes_any_file_of_the_format(tmp_path: Path) -> None:
    trace = tmp_path / "own.jsonl"
    line = {"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [4, 5]}
    trace.write_text("".join(json.dumps(line | {"timestamp": n}) + "\n" for n in range(4)))
    result = report("--trace", str(trace), "--memory", "512MiB")
    assert (result["served"]["blocks"], result["served"]["blocks_hit"]) == (8, 6)


def test_a_bad_line_ends_it_with_one_sentence(tmp_path: Path) -> None:
    trace = tmp_path / "bad.jsonl"
    trace.write_text('{"timestamp": 0}\n')
    ended = demo("--trace", str(trace))
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"nexuskv: {trace}:1: not a request: ")
    assert ended.stderr.count("\n") == 1


def test_a_budget_above_the_machine_is_refused_by_the_daemon() -> None:
    ended = demo("--requests", "3", "--memory", "4000TiB", "--json")
    assert ended.returncode == 1
    assert json.loads(ended.stderr)["error"]["message"].startswith("the daemon did not start: ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    with subprocess.Popen(command("--json"), env=os.environ | {"TMPDIR": str(tmp_path)}) as process:
        while not list(Path("/dev/shm").glob(f"nexuskv-demo-{process.pid}-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(60) == code
    assert not list(tmp_path.iterdir())
    assert not list(Path("/dev/shm").glob(f"nexuskv-demo-{process.pid}-*"))


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan(Survey(Trace(mooncake_slice(), 3)), 64 * MIB)


def test_an_engine_notices_wrong_bytes(small: Plan) -> None:
    with (
        running() as daemon,
        EngineProcess("engine A", daemon.address, small.descriptor) as engine,
        daemon.client() as client,
    ):
        engine.ask(Serve((1, 2)), Served)
        cache = client.open(small.descriptor, model=MODEL)
        with cache.reserve(cache.keys(token_ids((1, 2, 3)))) as pages:
            for page in pages:
                page["key"].view(np.uint8)[...] = 7
        with pytest.raises(
            DemoFailed, match=r"engine A: page 2 .* has other bytes than were stored: key, value"
        ):
            engine.ask(Recall((1, 2, 3)), Served)


def test_a_page_that_went_missing_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trace = Trace(mooncake_slice(), 3)
    survey = Survey(trace)

    def evict_behind_the_back_of_c(engine: str, _: TraceRequest) -> None:
        if engine == "engine C":
            (socket,) = tmp_path.glob("nexuskv-*/socket")
            with nexuskv.connect(f"unix:{socket}") as client:
                client.evict()

    with pytest.raises(
        DemoFailed, match=r"engine C found \d of 15 blocks of request 2, though nothing was evicted"
    ):
        Demo(trace, survey, plan(survey, 64 * MIB), evict_behind_the_back_of_c).run()


def test_an_engine_that_dies_is_reported(small: Plan) -> None:
    with (
        running() as daemon,
        EngineProcess("engine A", daemon.address, small.descriptor) as engine,
    ):
        os.kill(engine.ready.pid, signal.SIGKILL)
        with pytest.raises(DemoFailed, match="engine A: ended unexpectedly"):
            engine.ask(Serve((1, 2)), Served)
