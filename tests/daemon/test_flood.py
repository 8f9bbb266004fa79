"""Floods: a thousand connections, garbage without end, clients that never listen. Whoever behaves is served on."""

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from nexuskv import contract
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Request
from tests.daemon.conftest import PAGES
from tests.support.daemon import Daemon
from tests.support.pages import keys as chain
from tests.support.pages import put, small, verified
from tests.support.raw import RawSession
from tests.support.waiting import until

HELLO = codec.encode(m.Hello(1, m.PROTOCOL_VERSION))


def connected(daemon: Daemon) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(str(daemon.socket))
    return sock


@pytest.fixture
def quiet(daemon: Daemon, session: RawSession) -> Iterator[None]:
    """Afterwards the daemon has as many descriptors and sessions as before, and a session of before still answers."""
    before = daemon.descriptors()
    yield
    assert session.alive()
    until(lambda: daemon.descriptors() == before, "the daemon has closed what was dropped")
    assert session.ask(m.GetStats(session.number()), m.Stats).sessions == 1


@pytest.mark.parametrize("said", [b"", HELLO, b"\xc1 garbage"], ids=["nothing", "hello", "garbage"])
def test_a_thousand_connections_opened_and_dropped(daemon: Daemon, quiet: None, said: bytes) -> None:
    for _ in range(1000):
        with connected(daemon) as sock:
            if said:
                sock.send(said)


def test_a_thousand_connections_at_once(daemon: Daemon, quiet: None) -> None:
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(connected(daemon)).send(HELLO)
        with RawSession(daemon.socket) as late:
            assert late.ask(m.GetStats(late.number()), m.Stats).sessions == 1002


def test_random_bytes_from_many_connections(daemon: Daemon, quiet: None) -> None:
    noise = random.Random(4)
    for _ in range(500):
        with connected(daemon) as sock:
            if noise.random() < 0.5:
                sock.send(HELLO)
            sock.send(noise.randbytes(noise.randrange(1, 3000)))


def test_one_connection_that_asks_for_nonsense_without_end(daemon: Daemon, quiet: None) -> None:
    with RawSession(daemon.socket) as noisy:
        for _ in range(2000):
            assert noisy.refusal(m.Abort(noisy.number(), 99)).code == "not_reserved"


def until_refused(sock: socket.socket, data: bytes) -> int:
    """Sends until the daemon takes no more; returns how many messages it took."""
    sock.settimeout(0.3)
    taken = 0
    try:
        while taken < 100_000:
            sock.send(data)
            taken += 1
    except TimeoutError:
        return taken
    raise AssertionError("the daemon took everything and kept the answers")


@pytest.mark.parametrize(
    "request_", [m.GetStats(1), m.Lookup(1, 1, [bytes(32)] * m.MAX_KEYS)], ids=["small", "large"]
)
def test_a_client_that_never_reads_is_not_read_either(
    daemon: Daemon, quiet: None, session: RawSession, request_: Request
) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            deaf = stack.enter_context(connected(daemon))
            deaf.send(HELLO)
            deaf.send(codec.encode(m.Register(2, contract.encode(PAGES))))
            assert until_refused(deaf, codec.encode(request_)) > 0
        assert session.alive()
        with daemon.client() as client:
            cache = client.open(PAGES, model="flood", salt=type(request_).__name__)
            assert put(cache, chain(cache, 2)) == 2
            assert verified(cache, chain(cache, 2)) == 2


def test_a_client_that_takes_its_answers_late_gets_them_all(daemon: Daemon, quiet: None) -> None:
    with connected(daemon) as sock:
        sock.send(HELLO)
        asked = until_refused(sock, codec.encode(m.GetStats(1)))
        sock.settimeout(30)
        answers = [codec.decode_reply(sock.recv(65536)) for _ in range(1 + asked)]

    assert isinstance(answers[0], m.Welcome)
    assert all(isinstance(answer, m.Stats) for answer in answers[1:])


def test_many_descriptors_registered_by_one_client(daemon: Daemon, quiet: None) -> None:
    with daemon.client() as client:
        for number in range(300):
            client.open(small(f"flood-{number}", kib=4 + 4 * number), model="flood")
        assert len(client.stats().arenas) >= 300
