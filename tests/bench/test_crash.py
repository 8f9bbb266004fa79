"""`nexuskv bench crash`: a daemon killed under load loses nothing, and its clients go on by themselves."""

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.bench.test_bench import bench, command, figures

CHECKS = ("pages_lost", "pages_torn", "leaked", "client_restarts")


def test_nothing_is_lost_and_no_client_notices() -> None:
    ended = bench("crash", "--kills", "5", "--seed", "3", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = figures(ended)
    assert {name: rows[name]["value"] for name in CHECKS} == dict.fromkeys(CHECKS, 0)
    assert rows["kills"]["value"] == 5
    assert rows["pages_written"]["value"] > 0
    assert rows["pages_verified"]["value"] > 0
    assert set(rows) == {*CHECKS, "kills", "pages_written", "pages_verified", "seconds"}


def test_a_lost_page_is_noticed_and_is_exit_code_1(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("crash", "--kills", "3"),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        while process.poll() is None:  # without its journal a daemon begins anew
            for journal in Path("/dev/shm").glob(f"nexuskv-bench-{process.pid}-*-journal"):
                journal.unlink(missing_ok=True)
            time.sleep(0.01)
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 1
    assert "DO NOT HOLD: pages_lost is " in said


def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("crash", "--kills", "100"), env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as process:
        while not list(Path("/dev/shm").glob(f"nexuskv-bench-{process.pid}-*-pins-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert not list(tmp_path.iterdir())
    assert not list(Path("/dev/shm").glob(f"nexuskv-bench-{process.pid}-*"))
