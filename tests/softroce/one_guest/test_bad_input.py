"""A serving end believes nothing that comes over its control connection; what breaks a rule ends that peer alone."""

import os
import socket
from collections.abc import Callable

import msgspec
import pytest

from nexuskv_transport.checks.pulling import all_ok, pull_all
from nexuskv_transport.rdma.channel import parse
from nexuskv_transport.rdma.handshake import Address, Offer, Turned, receive, send
from tests.softroce.ends import PAGE, both, exposed, page_of

NOWHERE = Address(1, 1, "0000:0000:0000:0000:0000:ffff:0a4d:0063", 2, 0, 5, 1, 1)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


def garbage(sock: socket.socket) -> None:
    sock.sendall(os.urandom(4096))


def half_a_frame(sock: socket.socket) -> None:
    sock.sendall((100).to_bytes(4, "little") + b"half")
    sock.shutdown(socket.SHUT_WR)


def huge(sock: socket.socket) -> None:
    sock.sendall((2**32 - 1).to_bytes(4, "little"))


def not_an_offer(sock: socket.socket) -> None:
    send(sock, Turned("you are turned away"))


def out_of_bounds(sock: socket.socket) -> None:
    offer = ["offer", "a", [2**24, 1, NOWHERE.gid, 2, 0, 5, 1, 1]]
    sock.sendall(frame(msgspec.msgpack.encode(offer)))


@pytest.mark.parametrize("misbehave", [garbage, half_a_frame, huge, not_an_offer, out_of_bounds])
def test_nonsense_ends_the_peer_alone(misbehave: Callable[[socket.socket], None]) -> None:
    with (
        both("a") as ends,
        exposed(ends.serving, 1, "a", b"a" * PAGE) as (_, region),
        exposed(ends.pulling, 1, "a", bytes(PAGE)) as (into, _),
        ends.connect() as connection,
    ):
        assert all_ok(pull_all(connection, [page_of(region, into)]))
        with socket.create_connection(parse(ends.address), timeout=20) as sock:
            misbehave(sock)
            with pytest.raises((ConnectionResetError, StopIteration)):
                _ended(sock)
        assert all_ok(pull_all(connection, [page_of(region, into)]))


def test_an_offer_from_nowhere_is_answered_and_serves_nobody() -> None:
    with both("a") as ends, socket.create_connection(parse(ends.address), timeout=20) as sock:
        send(sock, Offer("a", NOWHERE))
        receive(sock)


def _ended(sock: socket.socket) -> None:
    if not sock.recv(1):
        raise StopIteration
