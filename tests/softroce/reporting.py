"""How tests that run in a guest tell their outcomes: a pytest plugin there, and a reader for the host.

Owns the file: a line for each phase of a test that is worth telling, so that what ended before a guest died is known.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

PATH = "NEXUSKV_REPORT"
"""Environment variable: the file, as the guest sees it."""


class Phase(msgspec.Struct, frozen=True):
    """Set-up, call or tear-down of a test."""

    test: str
    when: str
    outcome: str
    text: str
    seconds: float


class Outcome(msgspec.Struct, frozen=True):
    """Of a whole test: "passed", "failed" or "skipped", and why."""

    outcome: str
    text: str


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the guest: notes the phase."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    phase = Phase(report.nodeid, report.when, report.outcome, text, report.duration)
    with Path(os.environ[PATH]).open("ab") as file:
        file.write(msgspec.json.encode(phase) + b"\n")


def outcomes(path: Path) -> dict[str, Outcome]:
    """On the host: of all tests that have ended."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    phases = [msgspec.json.decode(line, type=Phase) for line in lines]
    ended = {phase.test for phase in phases if phase.when == "teardown"}
    return {test: _outcome([each for each in phases if each.test == test]) for test in ended}


def _outcome(phases: Iterable[Phase]) -> Outcome:
    notable = [each for each in phases if each.outcome != "passed"]
    for kind in ("failed", "skipped"):
        texts = [each.text for each in notable if each.outcome == kind]
        if texts:
            return Outcome(kind, "\n".join(texts))
    return Outcome("passed", "")
