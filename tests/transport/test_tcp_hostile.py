"""Peers that do not play by the rules: what they send costs their own connection, and nothing else."""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from nexuskv_transport import Outcome, wire
from nexuskv_transport.tcp import server as serving_end
from nexuskv_transport.tcp import strand
from tests.transport.serving import PAGE, SECONDS, Serving, connected, fetch, served, serving


@pytest.fixture
def server() -> Iterator[Serving]:
    with serving() as server:
        yield server
        assert served(server.address, server.region)  # whatever a test did to it


@contextlib.contextmanager
def raw(server: Serving, *, greet: bool = True) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as sock:
        if greet:
            sock.sendall(wire.encode_hello())
            assert wire.decode_hello(read(sock, wire.HELLO_BYTES)) == (wire.VERSION, wire.WELCOME)
        yield sock


def read(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes and (more := sock.recv(nbytes - len(data))):
        data += more
    return data


def hung_up(sock: socket.socket) -> bool:
    """Whether the other end closes, after whatever else it has to say."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def pull_frame(server: Serving, *, nbytes: int = len(PAGE), offset: int = 0, token: bytes = b"") -> bytes:
    token = token or getattr(server.region, "token", b"")
    return wire.encode_pull(1, [(token, server.region.number, nbytes, offset)])


def test_a_request_by_hand(server: Serving) -> None:
    with raw(server) as sock:
        sock.sendall(pull_frame(server) + wire.encode_ping(2))
        assert wire.decode_answer(read(sock, 16)) == (wire.PAGES, 0, 1, len(PAGE))
        assert read(sock, len(PAGE)) == PAGE
        assert wire.decode_answer(read(sock, 16)) == (wire.PONG, 0, 2, 0)


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_request_in_pieces(server: Serving, pieces: int) -> None:
    frame = pull_frame(server)
    with raw(server) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(frame), pieces):
            sock.sendall(frame[at : at + pieces])
            time.sleep(0.001)
        assert read(sock, 16 + len(PAGE))[16:] == PAGE


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("greet", [False, True])
def test_garbage(server: Serving, seed: int, greet: bool) -> None:  # a parameter of the test
    with raw(server, greet=greet) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(random.Random(seed).randbytes(100_000))
            sock.shutdown(socket.SHUT_WR)
        assert hung_up(sock)
    assert server.end()


def test_half_a_hello_and_half_a_frame(server: Serving) -> None:
    for index, (greet, half) in enumerate(
        [(False, wire.encode_hello()[:9]), (True, pull_frame(server)[:20])]
    ):
        with raw(server, greet=greet) as sock:
            sock.sendall(half)
        assert server.end(index)


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_another_version(server: Serving, version: int) -> None:
    with raw(server, greet=False) as sock:
        sock.sendall(wire.encode_hello(version=version))
        assert wire.decode_hello(read(sock, wire.HELLO_BYTES)) == (wire.VERSION, wire.OTHER_VERSION)
        assert hung_up(sock)
    assert f"speaks version {version}" in server.end()


LIES: dict[str, Callable[[Serving], bytes]] = {
    "longer than the region": lambda server: pull_frame(server, nbytes=2**40),
    "as long as can be": lambda server: pull_frame(server, nbytes=2**64 - 1, offset=2**64 - 1),
    "empty": lambda server: pull_frame(server, nbytes=0),
    "behind the end": lambda server: pull_frame(server, nbytes=1, offset=2**63),
    "forged": lambda server: pull_frame(server, token=b"x" * 16),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(server: Serving, lie: str) -> None:
    with raw(server) as sock:
        sock.sendall(LIES[lie](server) + pull_frame(server))
        assert wire.decode_answer(read(sock, 16)) == (wire.REFUSED, 0, 1, 0)
        assert hung_up(sock)
    assert server.end()


FRAMES = {
    "unknown kind": struct.pack("<BBHI", 9, 0, 1, 1),
    "no stretches": struct.pack("<BBHI", wire.PULL, 0, 0, 1),
    "more than may be": struct.pack("<BBHI", wire.PULL, 0, wire.MAX_COUNT + 1, 1),
    "a ping that wants something": struct.pack("<BBHI", wire.PING, 0, 3, 1),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_that_do_not_exist(server: Serving, frame: str) -> None:
    with raw(server) as sock:
        sock.sendall(FRAMES[frame])
        assert hung_up(sock)
    assert "sent a request of unknown kind" in server.end()


def test_silence_and_slowness_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_end, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setattr(serving_end, "STEP_SECONDS", 0.4)
    with serving() as server:
        with raw(server, greet=False) as sock:
            assert hung_up(sock)
        assert "handshake did not come in time" in server.end()
        with raw(server) as sock:
            assert hung_up(sock)
        assert "a request, or the reading of an answer, did not come in time" in server.end(1)


def test_a_client_that_reads_nothing_holds_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_end, "STEP_SECONDS", 0.3)
    with serving() as server:
        whole = [(getattr(server.region, "token", b""), 7, server.region.nbytes, 0)] * wire.MAX_COUNT
        with raw(server) as sock:
            sock.sendall(wire.encode_pull(1, whole))
            assert "reading of an answer, did not come in time" in server.end()
        assert served(server.address, server.region)


@contextlib.contextmanager
def pretending(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that greets as it should and then behaves as `answer` says; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = []

        def serve() -> None:
            for _ in range(2):  # as many as a connection has streams
                sock, _ = listener.accept()
                threads.append(threading.Thread(target=converse, args=(sock,)))
                threads[-1].start()

        def converse(sock: socket.socket) -> None:
            with sock, contextlib.suppress(OSError):
                read(sock, wire.HELLO_BYTES)
                answer(sock)
                hung_up(sock)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
        for each in threads:
            each.join()


def answering(*parts: bytes) -> Callable[[socket.socket], None]:
    """Greets, reads a request, and says that."""

    def answer(sock: socket.socket) -> None:
        sock.sendall(wire.encode_hello())
        if read(sock, 8 + 36):
            sock.sendall(b"".join(parts))

    return answer


@pytest.mark.parametrize(
    ("answer", "outcome", "sentence"),
    [
        (
            answering(wire.encode_answer(wire.PAGES, 1, 10), bytes(len(PAGE))),
            Outcome.BROKEN,
            "sent 10 bytes where",
        ),
        (answering(wire.encode_answer(wire.PONG, 1), bytes(len(PAGE))), Outcome.BROKEN, "sent 0 bytes where"),
        (answering(wire.encode_answer(wire.PAGES, 9, len(PAGE)), PAGE), Outcome.CLOSED, "nobody had asked"),
        (answering(bytes(16 + len(PAGE))), Outcome.CLOSED, "unknown kind 0"),
        (answering(wire.encode_answer(wire.PAGES, 1, len(PAGE)), PAGE[:99]), Outcome.CLOSED, "hung up"),
        (answering(wire.encode_answer(wire.PAGES, 1, len(PAGE))[:7]), Outcome.CLOSED, "hung up"),
        (answering(wire.encode_answer(wire.REFUSED, 1)), Outcome.REFUSED, "does not serve"),
        (answering(wire.encode_answer(wire.REFUSED, 1, place=5)), Outcome.BROKEN, "sent 0 bytes where"),
        (answering(), Outcome.CLOSED, "hung up"),
        (lambda sock: sock.sendall(b"HTTP/1.1 400 Bad"), Outcome.CLOSED, "does not speak the page protocol"),
        (lambda sock: sock.sendall(wire.encode_hello(version=3)), Outcome.CLOSED, "speaks version 3"),
        (lambda sock: sock.sendall(wire.encode_hello()[:5]), Outcome.CLOSED, "hung up"),
    ],
)
def test_servers_that_lie(
    server: Serving, answer: Callable[[socket.socket], None], outcome: Outcome, sentence: str
) -> None:
    def then_hang_up(sock: socket.socket) -> None:
        answer(sock)
        sock.shutdown(socket.SHUT_WR)

    with pretending(then_hang_up) as address, connected(address) as connection:
        assert fetch(connection, server.region)[0] is outcome
        assert sentence in str(connection.ended)


def test_a_server_that_falls_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strand, "PING_SECONDS", 0.1)
    monkeypatch.setattr(strand, "PONG_SECONDS", 0.2)

    def silent(sock: socket.socket) -> None:
        sock.sendall(wire.encode_hello())

    with pretending(silent) as address, connected(address) as connection:
        until = time.monotonic() + SECONDS
        while connection.ended is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert "does not answer" in connection.ended


def test_an_idle_connection_is_kept_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strand, "PING_SECONDS", 0.05)
    monkeypatch.setattr(serving_end, "STEP_SECONDS", 0.5)
    with serving() as server, connected(server.address) as connection:
        assert fetch(connection, server.region) == (Outcome.OK, PAGE)
        time.sleep(1.5)
        assert connection.ended is None
        assert fetch(connection, server.region) == (Outcome.OK, PAGE)


def test_a_peer_that_cannot_be_reached_ends_within_the_deadline() -> None:
    """An address of TEST-NET answers nothing, or the network is told to be unreachable: both end the pull."""
    with serving() as server, connected("tcp://127.0.0.1:9") as connection:
        assert fetch(connection, server.region)[0] is Outcome.CLOSED
        assert connection.ended == "tcp://127.0.0.1:9: Connection refused"
