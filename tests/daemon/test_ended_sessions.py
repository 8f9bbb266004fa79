"""What ends a session: its sender cannot be listened to any more. It is told why, and nobody else notices."""

import msgspec
import pytest

import nexuskv
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Request
from tests.daemon.conftest import PAGES
from tests.support.daemon import Daemon
from tests.support.raw import RawSession, fresh

MALFORMED = [
    b"\xc1",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x91" * 100_000,
    b"\x93\xa5hello\x01" + b"\x91" * 100_000,
    b"\x92\xa1\xff\x01",
    msgspec.msgpack.encode({"stats": 1}),
    codec.encode(m.GetStats(1)) + b"trailing",
    codec.encode(m.Welcome(1, 1, 1, "", "", ""))[:-1],
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_message_ends_its_session_with_a_sentence(
    daemon: Daemon, session: RawSession, data: bytes
) -> None:
    with RawSession(daemon.socket) as culprit:
        refusal = culprit.refusal(data)

        assert refusal.code == "bad_request"
        assert refusal.message
        assert culprit.ended()
    assert session.alive()


def test_an_oversized_message(daemon: Daemon, session: RawSession) -> None:
    with RawSession(daemon.socket) as culprit:
        refusal = culprit.refusal(b"x" * (m.MAX_MESSAGE_BYTES + 1))

        assert str(m.MAX_MESSAGE_BYTES) in refusal.message
        assert "send at most 4096 keys" in refusal.message
        assert culprit.ended()
    assert session.alive()


def test_an_empty_message(daemon: Daemon, session: RawSession) -> None:
    with RawSession(daemon.socket) as culprit:
        culprit.send(b"")

        assert culprit.ended()
    assert session.alive()


def test_another_protocol_version_is_told_both(daemon: Daemon) -> None:
    with RawSession(daemon.socket, greet=False) as stranger:
        refusal = stranger.refusal(m.Hello(1, 999))

        assert (refusal.id, refusal.code) == (1, "version_mismatch")
        assert f"version {m.PROTOCOL_VERSION}, the client 999" in refusal.message
        assert stranger.ended()


def test_a_client_of_another_version_raises_it(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "PROTOCOL_VERSION", 999)

    with pytest.raises(nexuskv.VersionMismatch, match="install the same release on both sides"):
        daemon.client()


@pytest.mark.parametrize("request_", [m.GetStats(5), m.Lookup(5, 1, []), m.Evict(5, everything=True)])
def test_a_message_before_hello(daemon: Daemon, request_: Request) -> None:
    with RawSession(daemon.socket, greet=False) as stranger:
        refusal = stranger.refusal(request_)

        assert (refusal.id, refusal.code) == (5, "bad_request")
        assert "the first message of a session is a hello" in refusal.message
        assert stranger.ended()


def test_the_pins_and_slots_of_an_ended_session_come_back(
    daemon: Daemon, session: RawSession, arena: int
) -> None:
    resident = session.committed(arena, 2)
    unwritten = fresh(2)
    with RawSession(daemon.socket) as culprit:
        same = culprit.register(PAGES)
        culprit.ask(m.Pin(culprit.number(), same, resident), m.Pinned)
        culprit.reserve(same, unwritten)
        culprit.refusal(b"\xc1")
        assert culprit.ended()

    stats = session.ask(m.GetStats(session.number()), m.Stats)
    assert (stats.tenants[0].pinned, stats.arenas[0].writing) == (0, 0)
    assert session.states(arena, unwritten) == bytes([m.NEVER_SEEN] * 2)


def test_a_peer_that_sends_descriptors_gets_nothing_for_them(daemon: Daemon) -> None:
    before = daemon.descriptors()
    with RawSession(daemon.socket) as giver:
        giver.send(codec.encode(m.GetStats(7)), gifts=[0, 1, 2])

        assert giver.receive().id == 7
        assert daemon.descriptors() <= before + 1  # the session's own
