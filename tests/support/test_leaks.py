"""The guard of tests/conftest.py, run over tests that leak: each is blamed, and what it left is gone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until

REPOSITORY = Path(__file__).parents[2]
SHM = Path("/dev/shm")
SECONDS = 60

LEAKY = """
import os, subprocess

def test_object():
    open(f'/dev/shm/nexuskv-test-{os.getpid()}-guard-1', 'wb').close()

def test_descriptor():
    os.open('/dev/null', os.O_RDONLY)

def test_process():
    os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '61')

def test_orphan():
    subprocess.run(['sh', '-c', 'sleep 62 >/dev/null 2>&1 &'], check=True)

def test_that_failed_already():
    open(f'/dev/shm/nexuskv-test-{os.getpid()}-guard-2', 'wb').close()
    assert not 'its own reason'

def test_that_tidies_up():
    subprocess.Popen(['sleep', '0.1']).wait()
"""


USING = """
import os, pathlib, time

def test_object_in_use():
    path = pathlib.Path(f'/dev/shm/nexuskv-test-{os.getpid()}-guard-3')
    path.touch()
    pathlib.Path('using').write_text(str(path))
    while not pathlib.Path('leaked').exists():
        time.sleep(0.01)
    assert path.exists()
    path.unlink()
"""

LEAKING_MEANWHILE = """
import os, pathlib, time

def test_beside_an_object_in_use():
    assert not pathlib.Path('using').exists()
    pathlib.Path('begun').touch()
    while not pathlib.Path('using').exists():
        time.sleep(0.01)
    open(f'/dev/shm/nexuskv-test-{os.getpid()}-guard-4', 'wb').close()
"""


def guarded(file: Path, tests: str) -> "subprocess.Popen[str]":
    """A run of pytest, under the guard, of such tests in the file's folder."""
    file.write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        file.name,
    ]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(command, cwd=file.parent, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest, under the guard, says about tests that leak."""
    with guarded(tmp_path_factory.mktemp("leaky") / "test_leaky.py", LEAKY) as run:
        return run.communicate(timeout=SECONDS)[0]


@pytest.mark.parametrize(
    ("test", "blame"),
    [
        ("test_object", "-guard-1"),
        ("test_descriptor", "-> /dev/null"),
        ("test_process", ": sleep 61"),
        ("test_orphan", ": sleep 62"),
    ],
)
def test_a_leak_fails_the_test_that_made_it(report: str, test: str, blame: str) -> None:
    section = report.partition(f"ERROR at teardown of {test} ")[2].partition("____")[2]

    assert "left behind" in section.partition("ERROR at")[0]
    assert blame in section.partition("ERROR at")[0]


def test_a_failed_test_shows_its_own_failure_alone(report: str) -> None:
    assert "ERROR at teardown of test_that_failed_already" not in report
    assert "its own reason" in report


def test_what_is_tidied_up_in_time_is_no_leak(report: str) -> None:
    assert "1 failed, 5 passed" in report


def test_the_guard_removes_what_it_finds(report: str) -> None:
    found = re.findall(r"/(nexuskv-test-[0-9]+-guard-[0-9])", report)
    assert found
    assert not [name for name in found if (SHM / name).exists()]


def test_runs_side_by_side_leave_each_other_alone(tmp_path: Path) -> None:
    with guarded(tmp_path / "test_leaking.py", LEAKING_MEANWHILE) as leaking:
        until((tmp_path / "begun").exists, "the run that leaks has begun")
        with guarded(tmp_path / "test_using.py", USING) as using:
            said, _ = leaking.communicate(timeout=SECONDS)
            (tmp_path / "leaked").touch()
            seen, _ = using.communicate(timeout=SECONDS)
    assert "-guard-4" in said
    assert "-guard-3" not in said
    assert "1 passed" in seen
