"""Runs the tests of `one_guest` and `two_guests` in emulated machines that have soft-RoCE, one boot for each folder.

Owns the exchange: on the host each of these tests is an item that tells the outcome of its namesake in a guest. All
that were selected are run in one go, when the first of them is due. In a guest, nothing here has any effect.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from _pytest._code.code import TerminalRepr, TracebackStyle

from tests.softroce import guests, machine, reporting
from tests.softroce.guests import Ended

IN_GUEST = "NEXUSKV_GUEST" in os.environ
HERE = Path(__file__).parent
ONE, TWO = "one_guest", "two_guests"
GUEST_SECONDS = 300.0
SETUP_SECONDS = 240.0  # the first time, apt downloads what it takes
TEST_SECONDS = 60.0


class GuestItem(pytest.Item):
    """A test that runs in a guest."""

    folder: str

    def runtest(self) -> None:
        """Raises what went wrong there."""
        if reason := machine.obstacle():
            pytest.skip(reason)
        found, said = _results(self.session, self.folder)
        outcome = found.get(self.nodeid)
        if outcome is None:
            raise GuestError(f"the guest did not get to this test:\n{said}")
        if outcome.outcome == "skipped":
            pytest.skip(outcome.text)
        if outcome.outcome == "failed":
            raise GuestError(outcome.text)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: TracebackStyle | None = None
    ) -> str | TerminalRepr:
        """The traceback of the guest, not ours."""
        if isinstance(excinfo.value, GuestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"[guest] {self.name}"


class GuestError(Exception):
    """A test failed in its guest; the text is what pytest said there."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On the host, has guests run what belongs there."""
    if not IN_GUEST:
        items[:] = [_in_guest(item) for item in items]


Results = tuple[dict[str, reporting.Outcome], str]
RESULTS = pytest.StashKey[dict[str, Results]]()


def _in_guest(item: pytest.Item) -> pytest.Item:
    folder = next((name for name in (ONE, TWO) if (HERE / name) in item.path.parents), None)
    if folder is None or item.parent is None:
        return item
    twin: GuestItem = GuestItem.from_parent(item.parent, name=item.name)
    twin.folder = folder
    twin.add_marker(pytest.mark.timeout(GUEST_SECONDS + SETUP_SECONDS))
    return twin


def _results(session: pytest.Session, folder: str) -> Results:
    known = session.stash.setdefault(RESULTS, {})
    if folder not in known:
        wanted = [each for each in session.items if isinstance(each, GuestItem) and each.folder == folder]
        known[folder] = _run(folder, [each.nodeid for each in wanted])
    return known[folder]


def _run(folder: str, tests: Sequence[str]) -> Results:
    with TemporaryDirectory(prefix="nexuskv-softroce-") as name:
        job = Path(name)
        command = ["env", f"{reporting.PATH}=/job/report", sys.executable, "-m", "pytest", "--quiet"]
        command += [
            "-p",
            "tests.softroce.reporting",
            "-p",
            "no:cacheprovider",
            f"--timeout={TEST_SECONDS}",
            *tests,
        ]
        ended = _boot(folder, command, job)
        return reporting.outcomes(job / "report"), ended.output


def _boot(folder: str, command: Sequence[str], job: Path) -> Ended:
    if folder == ONE:
        return guests.run_alone(command, job, GUEST_SECONDS)
    agent = [sys.executable, "-m", "tests.softroce.agent"]
    first, second = guests.run_pair(command, agent, job, GUEST_SECONDS)
    return Ended(first.status, f"{first.output}\nThe other guest:\n{second.output}")
