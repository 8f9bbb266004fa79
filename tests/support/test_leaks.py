"""The guard of tests/conftest.py, run over tests that leak: each is blamed, and what it left is gone."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SHM = Path("/dev/shm")

LEAKY = """
import os, subprocess

def test_object():
    open('/dev/shm/nexuskv-leak-guard-1', 'wb').close()

def test_descriptor():
    os.open('/dev/null', os.O_RDONLY)

def test_process():
    os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '61')

def test_orphan():
    subprocess.run(['sh', '-c', 'sleep 62 >/dev/null 2>&1 &'], check=True)

def test_that_failed_already():
    open('/dev/shm/nexuskv-leak-guard-2', 'wb').close()
    assert not 'its own reason'

def test_that_tidies_up():
    subprocess.Popen(['sleep', '0.1']).wait()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest, under the guard, says about tests that leak."""
    path = tmp_path_factory.mktemp("leaky") / "test_leaky.py"
    path.write_text(LEAKY)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(path)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize(
    ("test", "blame"),
    [
        ("test_object", "shared-memory object /nexuskv-leak-guard-1"),
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
    assert "nexuskv-leak-guard-1" in report
    assert not list(SHM.glob("nexuskv-leak-guard-*"))
