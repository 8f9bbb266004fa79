"""What the daemon refuses on a session that it goes on serving: each a code and a sentence.

The sessions are raw: the client would not send most of this.
"""

from contextlib import ExitStack

import msgspec
import pytest

import nexuskv
from nexuskv.protocol import messages as m
from nexuskv.protocol.offers import GetOffers
from tests.daemon.conftest import PAGES
from tests.support.daemon import Daemon, running
from tests.support.pages import small
from tests.support.raw import RawSession, fresh


def test_an_unknown_request(session: RawSession) -> None:
    refusal = session.refusal(msgspec.msgpack.encode(["teleport", 77, b"x"]))

    assert (refusal.id, refusal.code) == (77, "bad_request")
    assert "unknown request 'teleport'" in refusal.message


def test_a_request_with_a_wrong_type(session: RawSession) -> None:
    refusal = session.refusal(msgspec.msgpack.encode(["abort", 5, "seven"]))

    assert (refusal.id, refusal.code) == (5, "bad_request")
    assert "abort: Expected `int`, got `str`" in refusal.message


def test_more_keys_than_a_message_may_have(session: RawSession, arena: int) -> None:
    refusal = session.refusal(m.Lookup(session.number(), arena, fresh(m.MAX_KEYS + 1)))

    assert refusal.code == "bad_request"
    assert "more than 4096 in one message; split the call" in refusal.message


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_of_another_length(session: RawSession, arena: int, length: int) -> None:
    refusal = session.refusal(m.Reserve(session.number(), arena, [b"x" * length]))

    assert refusal.code == "bad_request"
    assert "length" in refusal.message


def test_a_second_hello(session: RawSession) -> None:
    refusal = session.refusal(m.Hello(session.number(), m.PROTOCOL_VERSION))

    assert refusal.code == "bad_request"
    assert "hello" in refusal.message


@pytest.mark.parametrize("kind", [m.Lookup, m.Pin, m.Reserve])
def test_an_arena_that_the_session_did_not_register(
    daemon: Daemon, session: RawSession, arena: int, kind: type[m.Lookup | m.Pin | m.Reserve]
) -> None:
    with RawSession(daemon.socket) as other:
        refusal = other.refusal(kind(other.number(), arena, fresh(1)))
        assert other.alive()

    assert refusal.code == "unknown_descriptor"
    assert "arena 1 is not registered in this session" in refusal.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"\x91" * 100_000,
        b"\x82\xa1x" + b"\x91" * 100_000,  # nested in a field that comes before the kind
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1\xff\x01",
        msgspec.msgpack.encode({"semantic_type": "NOTHING_SUCH"}),
    ],
)
def test_bytes_that_are_no_descriptor(session: RawSession, data: bytes) -> None:
    refusal = session.refusal(m.Register(session.number(), data))

    assert refusal.code == "bad_descriptor"


def test_a_page_larger_than_any_may_be(session: RawSession) -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(PAGES))
    fields["dims"]["kv_heads"] = 2**62
    refusal = session.refusal(m.Register(session.number(), msgspec.msgpack.encode(fields)))

    assert refusal.code == "bad_descriptor"


def test_offers_of_a_descriptor_that_nobody_registered(session: RawSession) -> None:
    refusal = session.refusal(GetOffers(session.number(), "unheard-of", fresh(1), 10))

    assert refusal.code == "unknown_descriptor"
    assert "open it before fetching" in refusal.message


def test_a_page_larger_than_the_operator_allows() -> None:
    with running("--max-page-bytes", "64KiB", memory="16MiB") as daemon, daemon.client() as client:
        client.open(small("fits", kib=64), model="m")
        with pytest.raises(
            nexuskv.DescriptorError, match="page_bytes: a page has 131072 bytes and 65536 are"
        ):
            client.open(small("too-large", kib=128), model="m")


def test_a_descriptor_id_with_other_content(session: RawSession, arena: int) -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(small(PAGES.descriptor_id, kib=8)))
    refusal = session.refusal(m.Register(session.number(), msgspec.msgpack.encode(fields)))

    assert refusal.code == "descriptor_conflict"
    assert "dims.kv_heads" in refusal.message


def test_a_release_of_an_unknown_hit(session: RawSession, arena: int) -> None:
    hit = session.ask(m.Pin(session.number(), arena, session.committed(arena, 1)), m.Pinned).hit
    session.ask(m.Release(session.number(), [hit]), m.Done)

    for unknown in (hit, 12345):
        refusal = session.refusal(m.Release(session.number(), [unknown]))
        assert refusal.code == "bad_request"
        assert f"hit {unknown} is not open" in refusal.message


def test_an_evict_of_a_descriptor_that_nobody_registered(session: RawSession) -> None:
    refusal = session.refusal(m.Evict(session.number(), "nothing-of-that-name"))

    assert refusal.code == "unknown_descriptor"
    assert PAGES.descriptor_id in refusal.message


def test_requests_that_want_no_reply_are_refused_in_silence(session: RawSession) -> None:
    session.send(m.Commit(0, 1 << 40, [0]))
    session.send(m.Release(0, [1 << 40]))

    assert session.alive()


def test_many_sessions_are_refused_at_once_and_none_hears_of_another(daemon: Daemon) -> None:
    with ExitStack() as stack:
        sessions = [stack.enter_context(RawSession(daemon.socket)) for _ in range(50)]
        for number, session in enumerate(sessions):
            session.send(m.Abort(1000 + number, 1))
        for number, session in enumerate(sessions):
            reply = session.receive()
            assert isinstance(reply, m.Refused)
            assert reply.id == 1000 + number
