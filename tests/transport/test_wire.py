"""Frames as bytes: what is encoded is decoded again, however it is cut; anything else is a violation, never a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv_transport import wire

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
STRETCH = st.tuples(st.binary(min_size=16, max_size=16), U32, U64, U64)
REQUESTS = st.lists(
    st.one_of(
        st.builds(
            lambda n, wanted: wire.Request(wire.PULL, n, wanted, sum(each[2] for each in wanted)),
            U32,
            st.lists(STRETCH, min_size=1, max_size=5),
        ),
        st.builds(lambda n: wire.Request(wire.PING, n, [], 0), U32),
    ),
    max_size=5,
)


def encoded(request: wire.Request) -> bytes:
    if request.kind == wire.PING:
        return wire.encode_ping(request.number)
    return wire.encode_pull(request.number, request.wanted)


@given(REQUESTS, st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_requests_cut_anywhere(requests: list[wire.Request], cuts: list[int]) -> None:
    data = b"".join(map(encoded, requests))
    decoder, found, at = wire.Requests(), [], 0
    while at < len(data):
        cut = cuts[at % len(cuts)]
        found += decoder.feed(memoryview(data)[at : at + cut])
        at += cut
    assert found == requests


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes_are_requests_or_a_violation(pieces: list[bytes]) -> None:
    decoder = wire.Requests()
    try:
        for piece in pieces:
            assert all(request.kind in {wire.PULL, wire.PING} for request in decoder.feed(memoryview(piece)))
    except wire.Violation:
        pass


@given(st.binary(min_size=wire.ANSWER_BYTES, max_size=wire.ANSWER_BYTES))
def test_any_bytes_are_an_answer_or_a_violation(data: bytes) -> None:
    try:
        answer = wire.decode_answer(data)
    except wire.Violation:
        assert data[0] not in {wire.PAGES, wire.PONG, wire.REFUSED}
    else:
        assert wire.encode_answer(answer.kind, answer.number, answer.nbytes, answer.place)[2:] == data[2:]


def test_a_bad_header_is_told_before_the_rest_has_come() -> None:
    with pytest.raises(wire.Violation, match="with 1001 stretches"):
        wire.Requests().feed(memoryview(wire.encode_pull(1, [(bytes(16), 1, 1, 1)] * 1001))[:8])


def test_what_is_kept_of_a_request_is_bounded() -> None:
    frame = wire.encode_pull(1, [(bytes(16), 1, 1, 1)] * wire.MAX_COUNT)
    assert len(frame) == wire.MAX_REQUEST_BYTES
    decoder = wire.Requests()
    assert decoder.feed(memoryview(frame)[:-1]) == []
    (request,) = decoder.feed(memoryview(frame)[-1:])
    assert len(request.wanted) == wire.MAX_COUNT


@given(st.binary(min_size=wire.HELLO_BYTES, max_size=wire.HELLO_BYTES))
def test_a_hello_of_another_protocol(data: bytes) -> None:
    with pytest.raises(wire.Violation, match="does not speak the page protocol"):
        wire.decode_hello(data)
