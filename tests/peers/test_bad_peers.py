"""A peer that breaks the protocol, or lies, costs a miss and its own link: nothing wrong is ever served."""

import socket
from collections.abc import Callable

import msgspec
import pytest

import nexuskv
from nexuskv import contract
from nexuskv.protocol import messages as m
from nexuskv.protocol.hosts import PeerStats
from nexuskv_daemon.peers import messages as p
from tests.support import impostor, pages
from tests.support.hosts import MODEL, TENANT, Host, peer, running
from tests.support.impostor import Answer, Impostor
from tests.support.waiting import until

DESCRIPTOR = pages.small(kib=16)
CHAIN = 4


def chain() -> list[bytes]:
    """The keys that any client of this test computes."""
    root = contract.chain_root(DESCRIPTOR.digest, MODEL, TENANT, "")
    return contract.page_keys(root, [0] * CHAIN * DESCRIPTOR.page_tokens, DESCRIPTOR.page_tokens)


def known(client: nexuskv.Client, other: Impostor) -> PeerStats:
    found = peer(client, other.address)
    assert found is not None
    return found


def connected(client: nexuskv.Client, other: Impostor) -> None:
    until(lambda: known(client, other).state == "connected", "the impostor is connected")


def test_the_impostor_is_good_enough_to_be_believed(host: Callable[[Impostor], Host]) -> None:
    with Impostor(DESCRIPTOR, chain()) as other, host(other).client() as client:
        connected(client, other)
        ours = client.open(DESCRIPTOR, model=MODEL)
        with ours.match(chain(), fetch=True) as hit:
            assert len(hit) == CHAIN
            assert pages.intact(hit)


def _another_version(me: Impostor, _: p.Hello) -> list[p.AnyMessage]:
    return [msgspec.structs.replace(me.greeting(), version=p.PROTOCOL_VERSION + 1)]


GREETINGS: dict[str, tuple[Answer, str]] = {
    "another version": (_another_version, "protocol version"),
    "garbage": (lambda *_: [b"\x05\x00\x00\x00HTTP/"], "no message of protocol"),
    "a web server": (lambda *_: [b"HTTP/1.1 400 Bad Request\r\n\r\n"], "a frame of"),
    "no hello": (lambda *_: [p.Pong(1)], "no hello"),
    "half a frame": (lambda me, _: [p.frame(me.greeting())[:9], impostor.HANG_UP], "hung up"),
    "nothing": (lambda *_: [impostor.HANG_UP], "hung up"),
}


@pytest.mark.parametrize("greeting", GREETINGS)
def test_who_greets_wrongly_is_not_spoken_to(host: Callable[[Impostor], Host], greeting: str) -> None:
    answer, sentence = GREETINGS[greeting]
    with Impostor(DESCRIPTOR, chain(), {p.Hello: answer}) as other, host(other).client() as client:
        until(lambda: sentence in known(client, other).trouble, f"the daemon says {sentence!r}")
        ours = client.open(DESCRIPTOR, model=MODEL)
        assert ours.fetch(chain()).pages == 0
        assert known(client, other).state == "connecting"


def _wrong_checksum(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    told = [
        msgspec.structs.replace(page, checksum=bytes(8)) for page in impostor.remote_pages(me, request.keys)
    ]
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, told)]


def _second_page_wrong(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    told = impostor.remote_pages(me, request.keys)
    told[1] = msgspec.structs.replace(told[1], offset=told[0].offset)  # another page's bytes
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, told)]


def _outside(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    told = [
        msgspec.structs.replace(page, offset=me.memory.nbytes - 8)  # less than a page is left there
        for page in impostor.remote_pages(me, request.keys)
    ]
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, told)]


def _too_large_a_region(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    larger = msgspec.structs.replace(me.region, nbytes=me.memory.nbytes + (1 << 20))
    told = [
        msgspec.structs.replace(page, offset=me.memory.nbytes - 8)
        for page in impostor.remote_pages(me, request.keys)
    ]
    return [p.Regions(0, "tcp", [larger]), p.Pinned(request.id, 0, told)]


def _unknown_region(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    return [p.Pinned(request.id, 0, impostor.remote_pages(me, request.keys))]


def _more_than_asked(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    told = impostor.remote_pages(me, request.keys)
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, [*told, *told])]


def _forged_token(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    forged = msgspec.structs.replace(me.region, token=bytes(16))
    return [p.Regions(0, "tcp", [forged]), p.Pinned(request.id, 0, impostor.remote_pages(me, request.keys))]


def _shorter(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    told = impostor.remote_pages(me, request.keys)[:1]
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, told)]


def _another_digest(me: Impostor, request: p.Open) -> list[p.AnyMessage]:
    return [p.Opened(request.id, 3, contract.encode(pages.small("other", kib=32)))]


def _no_descriptor(me: Impostor, request: p.Open) -> list[p.AnyMessage]:
    return [p.Opened(request.id, 3, b"\x80")]


def _boundary_beyond(me: Impostor, request: m.Measure) -> list[p.AnyMessage]:
    return [m.Measured(request.id, 0, 4_000_000)]


def _other_reply(me: Impostor, request: m.Measure) -> list[p.AnyMessage]:
    return [p.Pong(request.id)]


LIES: dict[str, tuple[type[m.Message], Answer, int]] = {
    "wrong checksum": (p.Pin, _wrong_checksum, 0),
    "another page's bytes": (p.Pin, _second_page_wrong, 1),
    "a page outside its region": (p.Pin, _outside, 0),
    "a region larger than it is": (p.Pin, _too_large_a_region, 0),
    "a region it did not tell of": (p.Pin, _unknown_region, 0),
    "more pages than asked for": (p.Pin, _more_than_asked, 0),
    "a forged token": (p.Pin, _forged_token, 0),
    "fewer pages than it said": (p.Pin, _shorter, 1),
    "another descriptor": (p.Open, _another_digest, 0),
    "no descriptor": (p.Open, _no_descriptor, 0),
    "a boundary beyond the keys": (m.Measure, _boundary_beyond, 0),
    "a reply of another kind": (m.Measure, _other_reply, 0),
    "an end in mid-question": (m.Measure, impostor.hang_up, 0),
    "an end while it pins": (p.Pin, impostor.hang_up, 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_a_miss(host: Callable[[Impostor], Host], lie: str) -> None:
    kind, answer, good = LIES[lie]
    with Impostor(DESCRIPTOR, chain(), {kind: answer}) as other, host(other).client() as client:
        connected(client, other)
        ours = client.open(DESCRIPTOR, model=MODEL)
        came = ours.fetch(chain(), within=2.0)
        assert came.pages == good
        assert came.reason
        assert pages.verified(ours, chain()) == good
        assert pages.put(ours, chain()) == CHAIN - good  # the slots came back, and the daemon is well


@pytest.mark.parametrize("lie", ["wrong checksum", "another page's bytes"])
def test_bad_pages_are_counted(host: Callable[[Impostor], Host], lie: str) -> None:
    with Impostor(DESCRIPTOR, chain(), {p.Pin: LIES[lie][1]}) as other, host(other).client() as client:
        connected(client, other)
        ours = client.open(DESCRIPTOR, model=MODEL)
        ours.fetch(chain())
        assert known(client, other).bad_pages == (CHAIN if lie == "wrong checksum" else 1)
        assert known(client, other).failures == 1


def test_a_peer_that_fails_again_and_again_is_not_asked_for_a_while(host: Callable[[Impostor], Host]) -> None:
    with Impostor(DESCRIPTOR, chain(), {p.Pin: _wrong_checksum}) as other, host(other).client() as client:
        connected(client, other)
        ours = client.open(DESCRIPTOR, model=MODEL)
        for _ in range(10):
            ours.fetch(chain())
        assert sum(isinstance(message, p.Pin) for message in other.said) == 3
        assert known(client, other).state == "resting"
        assert "no peer that may be asked" in ours.fetch(chain()).reason


def test_silence_costs_no_more_than_the_deadline(host: Callable[[Impostor], Host]) -> None:
    with Impostor(DESCRIPTOR, chain(), {p.Pin: impostor.nothing}) as other, host(other).client() as client:
        connected(client, other)
        ours = client.open(DESCRIPTOR, model=MODEL)
        assert "deadline" in ours.fetch(chain(), within=0.3).reason
        assert pages.put(ours, chain()) == CHAIN
        # It is told that nobody waits for what it may still pin.
        pin = next(message for message in other.said if isinstance(message, p.Pin))
        until(lambda: p.Release(0, pin.id) in other.said, "the pin is given back")


def test_a_peer_without_a_sign_of_life_is_given_up(host: Callable[[Impostor], Host]) -> None:
    with Impostor(DESCRIPTOR, chain(), {p.Ping: impostor.nothing}) as other, host(other).client() as client:
        until(lambda: "sign of life" in known(client, other).trouble, "the silent peer is given up")


STRANGERS = {
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "half a frame": p.frame(p.Ping(1))[:3],
    "a request before the hello": p.frame(p.Ping(1)),
    "a frame that never ends": b"\xff\xff\x0f\x00" + bytes(100),
    "another version": p.frame(p.Hello(0, 99, "x", 1, "", [])),
    "a message nested a thousand deep": (2000).to_bytes(4, "little") + b"\x91" * 2000,
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_cannot_disturb_a_daemon(stranger: str) -> None:
    with running(host := Host()), host.client() as client:
        with socket.create_connection(("127.0.0.1", host.port)) as sock:
            sock.sendall(STRANGERS[stranger])
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):  # its hello, perhaps a refusal, then the end
                pass
        ours = client.open(DESCRIPTOR, model=MODEL)
        assert pages.put(ours, chain()) == CHAIN
        assert client.peers().peers == []


def test_a_guest_may_ask_for_nothing_that_it_did_not_open() -> None:
    with running(host := Host()), socket.create_connection(("127.0.0.1", host.port)) as sock:
        frames = p.Frames()
        sock.sendall(p.frame(p.Hello(0, p.PROTOCOL_VERSION, "guest", 5, "", [])))
        sock.sendall(p.frame(m.Measure(1, 1, chain())) + p.frame(p.Open(2, "uid:987654", bytes(32))))
        sock.sendall(p.frame(p.Release(3, 99)))
        replies: list[p.AnyMessage] = []
        while sum(isinstance(reply, p.Refused) for reply in replies) < 2:
            replies += frames.feed(sock.recv(1 << 16))
        refused = {reply.id: reply for reply in replies if isinstance(reply, p.Refused)}
        assert "not open on this link" in refused[1].message
        assert "does not name tenant" in refused[2].message


def test_a_guest_that_leaves_gives_its_pins_back() -> None:
    with running(host := Host()), host.client() as client:
        ours = client.open(DESCRIPTOR, model=MODEL)
        pages.put(ours, chain())
        with socket.create_connection(("127.0.0.1", host.port)) as sock:
            frames = p.Frames()
            sock.sendall(p.frame(p.Hello(0, p.PROTOCOL_VERSION, "guest", 5, "", [])))
            sock.sendall(p.frame(p.Open(1, client.tenant, DESCRIPTOR.digest)))
            replies: list[p.AnyMessage] = []
            while not any(isinstance(reply, p.Opened) for reply in replies):
                replies += frames.feed(sock.recv(1 << 16))
            opened = next(reply for reply in replies if isinstance(reply, p.Opened))
            sock.sendall(p.frame(p.Pin(2, opened.arena, chain())))
            while not any(isinstance(reply, p.Pinned) for reply in replies):
                replies += frames.feed(sock.recv(1 << 16))
            assert client.evict().pages == 0
        until(lambda: client.evict().pages == CHAIN, "the pins are given back")
