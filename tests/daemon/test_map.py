"""What a reader of the shared index asks for: the index itself, once, and segments in which it found pages."""

import mmap

import pytest

from nexuskv.protocol import messages as m
from tests.daemon.conftest import PAGES
from tests.support.daemon import Daemon
from tests.support.pages import small
from tests.support.raw import RawSession

Given = dict[tuple[int, bool], int]


@pytest.fixture
def number(session: RawSession, arena: int) -> int:
    """The daemon's only segment, with a page in it."""
    session.committed(arena, 1)
    return max(number for number, _ in session.segments)


def given(session: RawSession, *numbers: int) -> Given:
    """Descriptors, by segment and whether one may write, of which those that come for `numbers` are a part."""
    session.ask(m.Map(session.number(), list(numbers)), m.Done)
    return session.segments


def test_the_index_comes_once_a_session(session: RawSession) -> None:
    session.attach()
    refusal = session.refusal(m.Attach(session.number()))

    assert refusal.code == "bad_request"
    assert "attached already" in refusal.message


def test_a_session_that_registered_nothing_reads_any_segment_of_its_tenant(
    daemon: Daemon, number: int
) -> None:
    with RawSession(daemon.socket) as engine:
        assert list(given(engine, number)) == [(number, False)]
        descriptor = engine.segments[number, False]
        with mmap.mmap(descriptor, PAGES.page_bytes, mmap.MAP_SHARED, mmap.PROT_READ):
            pass
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, PAGES.page_bytes, mmap.MAP_SHARED, mmap.PROT_WRITE)


def test_a_segment_of_a_registered_descriptor_comes_once(daemon: Daemon, number: int) -> None:
    with RawSession(daemon.socket) as engine:
        engine.register(PAGES)
        assert list(given(engine, number, number)) == [(number, False)]
        assert list(given(engine, number)) == [(number, False)]

        assert len(engine.notices) == 1


def test_a_segment_of_a_descriptor_that_others_registered_is_passed_over(daemon: Daemon, number: int) -> None:
    with RawSession(daemon.socket) as engine:
        engine.register(small("another", kib=8))

        assert given(engine, number) == {}


def test_segments_that_are_not_there_are_passed_over(daemon: Daemon, number: int) -> None:
    with RawSession(daemon.socket) as engine:
        assert given(engine, 0, number + 1, 2**32 - 1) == {}
        assert list(given(engine, 0, number, number + 1)) == [(number, False)]
