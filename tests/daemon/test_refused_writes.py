"""What the daemon refuses a writer: each a code and a sentence, and nothing of the request is done."""

import signal

import pytest

from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Request
from tests.daemon.conftest import PAGES, SLOTS
from tests.support.daemon import Daemon
from tests.support.pages import small
from tests.support.raw import RawSession, fresh
from tests.support.waiting import until


def test_a_reservation_larger_than_the_budget_says_the_numbers(session: RawSession, arena: int) -> None:
    resident = session.committed(arena, 3)
    hit = session.ask(m.Pin(session.number(), arena, resident[:2]), m.Pinned)
    refusal = session.refusal(m.Reserve(session.number(), arena, fresh(SLOTS + 1)))
    session.ask(m.Release(session.number(), [hit.hit]), m.Done)

    assert refusal.code == "arena_full"
    assert refusal.numbers["needed_bytes"] == (SLOTS + 1) * 4096
    assert refusal.numbers["pinned_bytes"] == 2 * 4096
    assert refusal.numbers["budget_bytes"] == SLOTS * 4096
    for name in ("free_bytes", "pinned_bytes", "budget_bytes"):
        assert str(refusal.numbers[name]) in refusal.message
    assert session.states(arena, resident) == bytes(3)  # nothing was evicted for it


def test_a_reservation_that_pins_leave_no_room_for(session: RawSession, arena: int) -> None:
    resident = session.committed(arena, SLOTS - 1)
    hit = session.ask(m.Pin(session.number(), arena, resident), m.Pinned)
    refusal = session.refusal(m.Reserve(session.number(), arena, fresh(2)))
    session.ask(m.Release(session.number(), [hit.hit]), m.Done)

    assert refusal.code == "arena_full"
    assert refusal.numbers["pinned_bytes"] == (SLOTS - 1) * 4096
    assert refusal.numbers["free_bytes"] + refusal.numbers["writing_bytes"] <= 4096
    assert session.states(arena, resident) == bytes(SLOTS - 1)
    granted = session.reserve(arena, fresh(2))
    session.ask(m.Abort(session.number(), granted.reservation), m.Done)


def test_a_commit_of_what_was_not_reserved(session: RawSession) -> None:
    refusal = session.refusal(m.Commit(session.number(), 1 << 40, [0]))

    assert refusal.code == "not_reserved"
    assert "not held by this session" in refusal.message


def test_a_commit_of_a_page_beyond_the_reservation(session: RawSession, arena: int) -> None:
    keys = fresh(2)
    reservation = session.reserve(arena, keys).reservation
    refusal = session.refusal(m.Commit(session.number(), reservation, [0, 2]))

    assert refusal.code == "not_reserved"
    assert "has 2 pages, there is no page 2" in refusal.message
    assert session.states(arena, keys) == bytes([m.BEING_WRITTEN] * 2)  # page 0 was not committed alone


def test_a_page_committed_twice(session: RawSession, arena: int) -> None:
    reservation = session.reserve(arena, fresh(2)).reservation
    assert session.ask(m.Commit(session.number(), reservation, [0]), m.Committed).pages == 1

    refusal = session.refusal(m.Commit(session.number(), reservation, [0]))
    assert refusal.code == "not_reserved"
    assert "committed already" in refusal.message
    refusal = session.refusal(m.Commit(session.number(), reservation, [1, 1]))
    assert refusal.code == "not_reserved"


def test_a_reservation_committed_twice(session: RawSession, arena: int) -> None:
    reservation = session.reserve(arena, fresh(1)).reservation
    session.ask(m.Commit(session.number(), reservation, [], rest=True), m.Committed)

    assert session.refusal(m.Commit(session.number(), reservation, [], rest=True)).code == "not_reserved"


def test_a_commit_and_an_abort_by_another_session(daemon: Daemon, session: RawSession, arena: int) -> None:
    keys = fresh(1)
    reservation = session.reserve(arena, keys).reservation
    with RawSession(daemon.socket) as other:
        assert other.refusal(m.Commit(other.number(), reservation, [0])).code == "not_reserved"
        assert other.refusal(m.Abort(other.number(), reservation)).code == "not_reserved"
        assert other.alive()

    assert session.states(arena, keys) == bytes([m.BEING_WRITTEN])


def test_a_child_committed_before_its_parent(session: RawSession, arena: int) -> None:
    keys = fresh(2)
    reservation = session.reserve(arena, keys).reservation
    for pages in ([1], [1, 0]):
        refusal = session.refusal(m.Commit(session.number(), reservation, pages))
        assert refusal.code == "parent_missing"
        assert "commit the page before it first" in refusal.message

    assert session.states(arena, keys) == bytes([m.BEING_WRITTEN] * 2)


def test_an_abort_twice(session: RawSession, arena: int) -> None:
    reservation = session.reserve(arena, fresh(1)).reservation
    session.ask(m.Abort(session.number(), reservation), m.Done)

    assert session.refusal(m.Abort(session.number(), reservation)).code == "not_reserved"


def test_a_reservation_with_the_same_key_twice(session: RawSession, arena: int) -> None:
    first, second = fresh(2)
    refusal = session.refusal(m.Reserve(session.number(), arena, [first, second, first]))

    assert refusal.code == "bad_request"
    assert "same key stands twice" in refusal.message
    assert session.states(arena, [first, second]) == bytes([m.NEVER_SEEN] * 2)


def test_a_parent_that_is_not_there(session: RawSession, arena: int) -> None:
    refusal = session.refusal(m.Reserve(session.number(), arena, fresh(1), fresh(1)[0]))

    assert refusal.code == "parent_missing"
    assert "reserve the chain from its root" in refusal.message


def test_a_parent_that_somebody_else_is_writing(daemon: Daemon, session: RawSession, arena: int) -> None:
    parent = fresh(1)
    session.reserve(arena, parent)
    with RawSession(daemon.socket) as other:
        refusal = other.refusal(m.Reserve(other.number(), other.register(PAGES), fresh(1), parent[0]))
        assert other.alive()

    assert refusal.code == "parent_missing"
    assert "still being written" in refusal.message


def test_a_reservation_of_another_arena_cannot_be_added_to(session: RawSession, arena: int) -> None:
    reservation = session.reserve(arena, fresh(1)).reservation
    other = session.register(small("other", kib=8))
    refusal = session.refusal(m.Reserve(session.number(), other, fresh(1), b"", reservation))

    assert refusal.code == "not_reserved"


def told(session: RawSession, reservation: int, *places: int) -> None:
    """Commits of one page each that want no reply, so that the daemon finds several at once."""
    for place in places:
        session.send(m.Commit(0, reservation, [place]))


def test_a_run_of_commits_that_want_no_reply(session: RawSession, arena: int) -> None:
    keys = fresh(SLOTS)
    reservation = session.reserve(arena, keys).reservation
    told(session, reservation, *range(SLOTS - 1))

    assert session.states(arena, keys) == bytes([m.PRESENT] * (SLOTS - 1) + [m.BEING_WRITTEN])
    session.ask(m.Abort(session.number(), reservation), m.Done)


def test_what_is_wrong_in_a_run_of_commits_spoils_none_of_the_others(session: RawSession, arena: int) -> None:
    keys = fresh(5)
    reservation = session.reserve(arena, keys).reservation
    told(session, reservation, 0, 0, 99, 2, 1, 2, 3)  # 2 comes before 1, which it hangs from, and then again

    assert session.states(arena, keys) == bytes([m.PRESENT] * 4 + [m.BEING_WRITTEN])
    session.ask(m.Abort(session.number(), reservation), m.Done)


def test_commits_that_came_before_the_end_of_the_connection_count(
    daemon: Daemon, session: RawSession
) -> None:
    keys = fresh(5)
    arena = session.register(PAGES)
    with RawSession(daemon.socket) as other:
        reservation = other.reserve(other.register(PAGES), keys).reservation
        told(other, reservation, 0, 1, 2)

    assert session.states(arena, keys[:3]) == bytes([m.PRESENT] * 3)
    until(lambda: session.states(arena, keys[3:]) == bytes([m.NEVER_SEEN] * 2), "the others come back")


def test_commits_that_came_before_garbage_count(daemon: Daemon, session: RawSession) -> None:
    keys = fresh(3)
    arena = session.register(PAGES)
    with RawSession(daemon.socket) as other:
        reservation = other.reserve(other.register(PAGES), keys).reservation
        told(other, reservation, 0, 1)
        assert other.refusal(b"garbage").code == "bad_request"
        assert other.ended()

    assert session.states(arena, keys[:2]) == bytes([m.PRESENT] * 2)


def test_commits_are_lost_by_no_reply_that_their_sender_did_not_read(
    daemon: Daemon, session: RawSession
) -> None:
    keys = fresh(6)
    arena = session.register(PAGES)
    with RawSession(daemon.socket) as other:
        reservation = other.reserve(other.register(PAGES), keys).reservation
        daemon.process.send_signal(signal.SIGSTOP)
        told(other, reservation, 0, 1, 2)
        other.send(m.GetStats(other.number()))
        told(other, reservation, 3, 4)
    daemon.process.send_signal(signal.SIGCONT)

    until(lambda: session.states(arena, keys[:5]) == bytes([m.PRESENT] * 5), "all that was told is done")


@pytest.mark.parametrize(
    "first", [m.Commit(0, 1, [0]), m.Commit(7, 1, [0]), m.GetStats(1), m.Release(0, [1])], ids=repr
)
@pytest.mark.parametrize(
    "second", [m.Commit(0, 1, [0]), m.GetStats(2), m.Hello(3, m.PROTOCOL_VERSION), b"garbage"], ids=repr
)
def test_two_messages_of_a_stranger(daemon: Daemon, first: Request, second: Request | bytes) -> None:
    with RawSession(daemon.socket, greet=False) as stranger, RawSession(daemon.socket) as session:
        daemon.process.send_signal(signal.SIGSTOP)
        stranger.send(first)
        stranger.send(second)
        daemon.process.send_signal(signal.SIGCONT)
        while not stranger.ended():
            pass
        assert session.alive()


@pytest.mark.parametrize("asked", [1, 2])
def test_a_reserve_may_be_withdrawn_before_its_answer_is_read(session: RawSession, asked: int) -> None:
    """Of the first reserve the answer waits for a segment, of the second it does not."""
    arena = session.register(PAGES)
    keys = [fresh(2) for _ in range(asked)]
    numbers = [session.number() for _ in keys]
    for number, wanted in zip(numbers, keys, strict=True):
        session.send(m.Reserve(number, arena, wanted))
    session.send(m.Withdraw(0, numbers[-1]))
    answers = [session.receive() for _ in keys]
    assert [answer.id for answer in answers] == numbers
    assert session.states(arena, keys[-1]) == bytes([m.NEVER_SEEN] * 2)
    assert session.states(arena, keys[0]) == bytes([m.BEING_WRITTEN if asked == 2 else m.NEVER_SEEN] * 2)
    session.ask(m.Withdraw(session.number(), numbers[-1]), m.Done)  # once more, which changes nothing
    assert session.refusal(m.Withdraw(session.number(), 0)).code == "bad_request"
