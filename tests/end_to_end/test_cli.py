"""The command line as a shell sees it: output, exit codes, and one clear sentence when something fails."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nexuskv.contract import PRESETS, mha, to_json
from tests.support import hosts
from tests.support.daemon import Daemon, running

PAGE16 = mha(
    "tiny-page16", layers=2, kv_heads=2, head_dim=64, page_tokens=16, dtype="bfloat16", engine_family="VLLM"
)


def nexuskv_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nexuskv.cli.main", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answer(*arguments: str) -> Any:
    ended = nexuskv_command(*arguments)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_version() -> None:
    ended = nexuskv_command("--version")
    assert ended.returncode == 0
    assert ended.stdout.startswith("nexuskv 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("status", "--nonsense"),
        ("evict",),
        ("evict", "--all", "--bytes", "1MiB"),
        ("evict", "--bytes", "much"),
        ("evict", "--bytes", "0"),
        ("demo", "--requests", "0"),
        ("demo", "--memory", "-1"),
        ("bench", "crash", "--kills", "x"),
        ("bench", "--runs", "-1"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    ended = nexuskv_command(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("usage: nexuskv")
    assert "Traceback" not in ended.stderr
    assert "_count" not in ended.stderr


@pytest.mark.parametrize(
    "arguments", [("evict", "--json"), ("--json", "nonsense"), ("status", "--json", "--x")]
)
def test_wrong_usage_is_json_when_json_was_asked_for(arguments: tuple[str, ...]) -> None:
    ended = nexuskv_command(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    error = json.loads(ended.stderr)["error"]
    assert error["code"] == "usage"
    assert error["message"]


def test_schema_accepts_every_preset() -> None:
    schema = answer("schema")
    jsonschema.Draft202012Validator.check_schema(schema)
    for descriptor in PRESETS.values():
        jsonschema.validate(json.loads(to_json(descriptor)), schema)


def test_descriptors_cost_what_the_models_say() -> None:
    rows = {row["descriptor_id"]: row for row in answer("descriptors", "--json")}
    assert set(rows) == set(PRESETS)
    llama, deepseek = rows["llama-3-8b-page16"], rows["deepseek-v3-mla-page16"]
    assert (llama["page_bytes"], llama["token_bytes"]) == (2 * 2**20, 2 * 32 * 8 * 128 * 2)
    assert llama["context_bytes"] == 16 * 2**30
    assert deepseek["token_bytes"] == 61 * (512 + 64) * 2
    checkpoints = [row for row in rows.values() if row["semantic_type"] in ("SSM_MAMBA2", "KDA_RECURRENT")]
    assert len(checkpoints) == 3
    for row in checkpoints:
        assert row["token_bytes"] is None
        assert row["context_bytes"] == row["page_bytes"]
    assert rows["mistral-7b-v0.1-page16"]["context_bytes"] == 4096 // 16 * 2 * 2**20
    assert llama["saving"] == pytest.approx(0.75)
    assert deepseek["saving"] == pytest.approx(1 - 576 / (2 * 128 * 128))


def test_descriptors_for_people() -> None:
    ended = nexuskv_command("descriptors", COLUMNS="200")
    assert ended.returncode == 0
    (llama,) = (line for line in ended.stdout.splitlines() if "llama-3-8b-page16" in line)
    for part in ("MHA_KV", "VLLM", "2 MiB", "128 KiB", "16 GiB", "75.00%"):
        assert part in llama


@pytest.mark.parametrize("command", [("status",), ("evict", "--all")])
def test_without_a_daemon_one_sentence_says_so(tmp_path: Path, command: tuple[str, ...]) -> None:
    ended = nexuskv_command(*command, "--socket", f"unix:{tmp_path}/absent")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("nexuskv: ")
    assert f"{tmp_path}/absent" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_errors_are_json_when_json_was_asked_for(tmp_path: Path) -> None:
    ended = nexuskv_command("--json", "--socket", f"unix:{tmp_path}/absent", "status")
    assert ended.returncode == 1
    error = json.loads(ended.stderr)["error"]
    assert error["code"] == "disconnected"
    assert f"{tmp_path}/absent" in error["message"]


def test_a_reader_that_stops_early_causes_no_complaint() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "nexuskv.cli.main", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    writer.stdout.close()
    _, complaint = writer.communicate(timeout=60)
    assert complaint == b""
    assert writer.returncode == 1


@pytest.mark.parametrize("arguments", [["descriptors"], ["descriptors", "--json"], ["schema"]])
def test_a_full_disk_is_told_in_a_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "nexuskv.cli.main", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert "No space left on device" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon that holds 10 pages of PAGE16 (16 KiB each), of which 4 were hit and 2 missed."""
    with running() as daemon, daemon.client() as client:
        cache = client.open(PAGE16, model="m")
        keys = cache.keys(list(range(160)))
        with cache.reserve(keys):
            pass
        cache.match(keys[:4]).close()
        cache.match(cache.keys([9] * 32)).close()
        yield daemon


def test_status_tells_what_the_daemon_holds(daemon: Daemon) -> None:
    status = answer("status", "--json", "--socket", daemon.address)
    assert (status["instance"], status["memory_budget"], status["sessions"]) == (daemon.instance, 64 << 20, 2)
    assert status["uptime"] >= 0
    assert 0 < status["memory_used"] <= status["memory_budget"]
    (arena,) = status["arenas"]
    assert (arena["descriptor_id"], arena["tenant"]) == ("tiny-page16", f"uid:{os.geteuid()}")
    assert (arena["resident"], arena["page_bytes"]) == (10, 16 << 10)
    (tenant,) = status["tenants"]
    assert (tenant["hits"], tenant["misses"], tenant["hit_rate"]) == (4, 2, 4 / 6)
    assert (tenant["pinned"], tenant["entries"]) == (0, 10)


def test_status_for_people(daemon: Daemon) -> None:
    ended = nexuskv_command("--socket", daemon.address, "status")
    assert ended.returncode == 0, ended.stderr
    assert f"instance {daemon.instance}" in ended.stdout
    assert "of 64 MiB" in ended.stdout
    (arena,) = (line for line in ended.stdout.splitlines() if "tiny-page16" in line)
    assert arena.split() == [
        "tiny-page16",
        f"uid:{os.geteuid()}",
        "10",
        "160",
        "KiB",
        "0",
        "0",
        "0",
        "0",
    ]
    (tenant,) = (line for line in ended.stdout.splitlines() if line.split()[:1] == [f"uid:{os.geteuid()}"])
    assert tenant.split()[1:7] == ["66.7%", "4", "2", "0", "10", "of"]


def test_status_finds_the_daemon_by_environment(daemon: Daemon) -> None:
    ended = nexuskv_command("status", NEXUSKV_SOCKET=daemon.address)
    assert ended.returncode == 0, ended.stderr


def test_evict_by_bytes_takes_what_was_asked_for(daemon: Daemon) -> None:
    evicted = answer("evict", "--bytes", "40KiB", "--json", "--socket", daemon.address)
    assert evicted == {"pages": 3, "bytes": 48 << 10, "retiring": 0}


def test_evict_by_descriptor_leaves_what_a_reader_holds(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGE16, model="m")
        with cache.match(cache.keys(list(range(160)))[:4]):
            ended = nexuskv_command("evict", "--descriptor", "tiny-page16", "--socket", daemon.address)
            assert ended.stdout == "evicted 6 pages, 96 KiB\n"


def test_evict_all_takes_held_pages_when_their_reader_lets_go(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGE16, model="m")
        with cache.match(cache.keys(list(range(160)))[:4]):
            evicted = answer("evict", "--all", "--json", "--socket", daemon.address)
            assert evicted["retiring"] == 4
            assert client.stats().arenas[0].retiring == 4
        assert client.stats().arenas[0].retiring == 0


def test_evict_of_an_unknown_descriptor_names_those_there_are(daemon: Daemon) -> None:
    ended = nexuskv_command("evict", "--descriptor", "absent", "--socket", daemon.address)
    assert ended.returncode == 1
    assert "'absent'" in ended.stderr
    assert "tiny-page16" in ended.stderr


def test_peers_tells_of_other_hosts() -> None:
    with hosts.pair() as (first, second):
        found = answer("peers", "--json", "--socket", second.daemon.address)
        assert found["directory"] == "none"
        (peer,) = found["peers"]
        assert (peer["address"], peer["state"]) == (first.address, "connected")
        table = nexuskv_command("peers", "--socket", second.daemon.address)
        assert table.returncode == 0
        assert "connected" in table.stdout


def test_peers_of_a_daemon_that_has_none(daemon: Daemon) -> None:
    assert answer("peers", "--json", "--socket", daemon.address) == {"directory": "none", "peers": []}
    assert "no peers" in nexuskv_command("peers", "--socket", daemon.address).stdout
