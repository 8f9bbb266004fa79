"""A small daemon and raw sessions with it, for the tests of what it refuses.

One segment fills the daemon's budget and is there from the start, so no test makes another.
"""

from collections.abc import Iterator

import pytest

from tests.support.daemon import Daemon, running
from tests.support.pages import small
from tests.support.raw import RawSession, fresh

PAGES = small(kib=4)
SLOTS = 16


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A daemon with its only segment in place."""
    with running("--segment-bytes", f"{SLOTS * 4}KiB", memory=f"{SLOTS * 4}KiB") as daemon:
        with RawSession(daemon.socket) as session:
            session.reserve(session.register(PAGES), fresh(1))
        yield daemon


@pytest.fixture
def session(daemon: Daemon) -> Iterator[RawSession]:
    """A greeted session, which must still answer when the test is over."""
    with RawSession(daemon.socket) as session:
        yield session
        assert session.alive()


@pytest.fixture
def arena(session: RawSession) -> int:
    """The arena of PAGES in the session."""
    return session.register(PAGES)
