"""What the daemon refuses of a group's reservation, on a session that it goes on serving. No client would send it."""

from collections.abc import Iterator

import pytest

from nexuskv import contract
from nexuskv.protocol import messages as m
from tests.groups.conftest import HYBRID
from tests.support.daemon import Daemon
from tests.support.raw import RawSession, fresh


@pytest.fixture
def session(daemon: Daemon) -> Iterator[RawSession]:
    with RawSession(daemon.socket) as session:
        yield session


@pytest.fixture
def arenas(session: RawSession) -> list[int]:
    requests = [m.Register(session.number(), contract.encode(descriptor)) for descriptor in HYBRID]
    return [session.ask(request, m.Registered).arena for request in requests]


def refused(session: RawSession, boundaries: int, parts: list[m.Part], reservation: int = 0) -> m.Refused:
    refusal = session.refusal(m.ReserveGroup(session.number(), boundaries, parts, reservation))
    assert session.alive()
    return refusal


def test_keys_that_do_not_make_boundaries(session: RawSession, arenas: list[int]) -> None:
    for keys in ([], fresh(3)):
        refusal = refused(session, 2, [m.Part(arenas[0], fresh(2)), m.Part(arenas[1], keys)])
        assert refusal.code == "bad_request"
        assert "as many keys for each boundary" in refusal.message


def test_an_arena_twice(session: RawSession, arenas: list[int]) -> None:
    refusal = refused(session, 1, [m.Part(arenas[0], fresh(1)), m.Part(arenas[0], fresh(1))])
    assert refusal.code == "bad_request"
    assert "two members of the group have one arena" in refusal.message


def test_more_keys_than_a_message_may_have(session: RawSession, arenas: list[int]) -> None:
    refusal = refused(session, 1, [m.Part(arenas[0], fresh(m.MAX_KEYS)), m.Part(arenas[1], fresh(1))])
    assert refusal.code == "bad_request"
    assert "reserve fewer boundaries at a time" in refusal.message


def test_an_arena_that_the_session_did_not_register(session: RawSession, arenas: list[int]) -> None:
    assert refused(session, 1, [m.Part(99, fresh(1))]).code == "unknown_descriptor"


def test_a_parent_that_is_not_there(session: RawSession, arenas: list[int]) -> None:
    refusal = refused(session, 1, [m.Part(arenas[0], fresh(1), fresh(1)[0])])
    assert refusal.code == "parent_missing"


def test_a_reservation_of_the_other_kind(session: RawSession, arenas: list[int]) -> None:
    single = session.ask(m.Reserve(session.number(), arenas[0], fresh(1)), m.Reserved).reservation
    parts = [m.Part(arena, fresh(1)) for arena in arenas]
    assert refused(session, 1, parts, single).code == "not_reserved"
    group = session.ask(m.ReserveGroup(session.number(), 1, parts), m.ReservedGroup).reservation
    refusal = session.refusal(m.Reserve(session.number(), arenas[0], fresh(1), b"", group))
    assert (refusal.code, session.alive()) == ("not_reserved", True)
    session.ask(m.Abort(session.number(), group), m.Done)


def test_a_boundary_is_committed_by_its_place_and_once(session: RawSession, arenas: list[int]) -> None:
    parts = [m.Part(arena, fresh(2)) for arena in arenas]
    granted = session.ask(m.ReserveGroup(session.number(), 2, parts), m.ReservedGroup)
    assert (granted.boundaries, granted.positions, granted.busy) == ([0, 1], [[0, 1]] * 3, 0)
    assert session.refusal(m.Commit(session.number(), granted.reservation, [2])).code == "not_reserved"
    assert session.refusal(m.Commit(session.number(), granted.reservation, [1])).code == "parent_missing"
    assert session.ask(m.Commit(session.number(), granted.reservation, [0]), m.Committed).pages == 1
    assert session.refusal(m.Commit(session.number(), granted.reservation, [0])).code == "not_reserved"
    done = m.Commit(session.number(), granted.reservation, [], rest=True)
    assert session.ask(done, m.Committed).pages == 2
