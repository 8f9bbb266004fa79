"""What every test is held to: it leaves no shared-memory object, no process and no descriptor behind.

Owns the guard around each test and around the whole run (for what fixtures of a wider scope leave). Refuses
to know the daemon: its fixtures are in tests/support and tidy up after themselves.
"""

import gc
from collections.abc import Generator, Iterator
from multiprocessing import resource_tracker

import pytest

from tests.support import leaks

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session", autouse=True)
def nothing_left_by_the_run() -> Iterator[None]:
    leaks.adopt_orphans()
    resource_tracker.ensure_running()  # else multiprocessing starts it within some test, and it stays
    before = leaks.traces()
    yield
    _blame(before)


@pytest.fixture(autouse=True)
def nothing_left_by_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    before = leaks.traces()
    yield
    now = leaks.traces()
    if request.node.stash.get(FAILED, False):
        # It has its own failure to show, and the traceback still holds the descriptors it had open.
        leaks.remove(leaks.left_behind(before._replace(descriptors=now.descriptors)))
    elif any(now.since(before)):
        _blame(before)


def _blame(before: leaks.Traces) -> None:
    gc.collect()  # what only a reference cycle holds has been let go
    left = leaks.left_behind(before)
    if any(left):
        message = f"left behind:\n{leaks.describe(left)}"
        leaks.remove(left)
        pytest.fail(message, pytrace=False)
