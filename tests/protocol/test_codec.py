"""What the codec says to bytes that are no request: always BadMessage, and whether the sender can be listened to on."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.protocol import branches as b
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Request

KEY = bytes(range(32))
pack = msgspec.msgpack.encode

REQUESTS: list[Request] = [
    m.Hello(1, 1, "x"),
    m.Register(2, b"abc"),
    m.Lookup(3, 1, [KEY]),
    m.Pin(4, 1, [KEY], whole=True),
    m.Reserve(5, 1, [KEY], KEY, 2),
    m.Commit(6, 2, [0, 1], rest=True),
    m.Abort(7, 2),
    m.Release(8, [1, 2]),
    m.GetStats(9),
    m.Evict(10, "x", 1, everything=True),
    b.OpenBranch(11, 1, KEY, KEY, 3),
    b.AttachBranch(12, 2**62, 1, KEY),
    b.Fork(13, 2**62, 4096),
    b.Append(14, 2**62, KEY, [KEY], 5, b"\1\0\0\0"),
    b.PublishBranch(15, 2**62, published=False),
    b.DropBranches(16, [1, 2**62]),
    b.TraceBranch(17, 2**62, 1),
    b.ListBranches(18, 1, KEY, 7),
    b.GetPath(19, 2**62, KEY),
]


def refused(data: bytes) -> codec.BadMessage:
    with pytest.raises(codec.BadMessage) as caught:
        codec.decode_request(data)
    return caught.value


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_requests_survive_the_wire(request_: Request) -> None:
    assert codec.decode_request(codec.encode(request_)) == request_


def test_an_unknown_request_is_named_and_not_fatal() -> None:
    error = refused(pack(["teleport", 7, b"abc"]))

    assert "unknown request 'teleport'" in str(error)
    assert (error.id, error.fatal) == (7, False)


def test_a_field_from_a_newer_release_is_ignored() -> None:
    assert codec.decode_request(pack(["abort", 1, 2, "new"])) == m.Abort(1, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x93\xa3pin",
        pack(None),
        pack([]),
        pack(["pin"]),
        pack({"pin": 1}),
        pack([1, "pin"]),
        pack(["pin", -1]),
        pack(["pin", 2**63]),
        pack(["pin", True]),
        b"\x92\xa1\xff\x01",  # a tag that is no UTF-8
        b"\x91" * 100_000,
        b"\x93\xa5hello\x01" + b"\x91" * 100_000,
        codec.encode(m.GetStats(1)) + b"\x00",
    ],
)
def test_what_is_no_request_at_all_is_fatal(data: bytes) -> None:
    assert refused(data).fatal


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["hello", 1, "1"], "hello: Expected `int`"),
        (["register", 1, "text"], "register: Expected `bytes`"),
        (["lookup", 1, 1, KEY], "lookup: Expected `array`"),
        (["lookup", 1, -1, []], "lookup: Expected `int` >= 0"),
        (["lookup", 1, 2**32, []], "lookup: Expected `int` <= 4294967295"),
        (["pin", 1, 1, [KEY], 1], "pin: Expected `bool`"),
        (["pin", 1], "pin: Expected `array` of at least length 4"),
        (["commit", 1, 1, [2**32]], "commit: Expected `int`"),
        (["reserve", 1, 1, [KEY], KEY + b"x"], "reserve: Expected `bytes` of length <= 32"),
    ],
)
def test_a_wrong_type_names_request_and_place_and_is_not_fatal(fields: list[object], said: str) -> None:
    error = refused(pack(fields))

    assert str(error).startswith(said)
    assert (error.id, error.fatal) == (1, False)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_of_another_length_is_named_by_its_place(length: int) -> None:
    error = refused(pack(["lookup", 1, 1, [KEY, bytes(length)]]))

    assert "length" in str(error)
    assert "32" in str(error)
    assert "$[3][" in str(error)
    assert not error.fatal


def test_more_keys_than_a_message_may_have_says_what_to_do() -> None:
    assert codec.decode_request(pack(["pin", 1, 1, [KEY] * m.MAX_KEYS])) is not None

    error = refused(pack(["pin", 1, 1, [KEY] * (m.MAX_KEYS + 1)]))

    assert "more than 4096 in one message; split the call" in str(error)
    assert not error.fatal


def test_an_oversized_message_says_the_limit() -> None:
    error = codec.oversized(m.MAX_MESSAGE_BYTES + 1)

    assert str(m.MAX_MESSAGE_BYTES) in str(error)
    assert error.fatal


def test_the_largest_request_fits_a_message() -> None:
    keys = [KEY] * m.MAX_KEYS

    assert len(codec.encode(m.Reserve(2**63 - 1, 2**32 - 1, keys, KEY, 2**63 - 1))) <= m.MAX_MESSAGE_BYTES
    assert len(codec.encode(m.Release(2**63 - 1, [2**63 - 1] * m.MAX_KEYS))) <= m.MAX_MESSAGE_BYTES


def test_a_refusal_is_short_whatever_the_request_was_called() -> None:
    assert len(str(refused(pack(["\0" * 100_000, 1])))) < 1000


@given(st.binary(max_size=300))
def test_random_bytes_are_a_request_or_a_bad_message(data: bytes) -> None:
    decodes(data)


@given(st.sampled_from(REQUESTS), st.data())
def test_damaged_requests_are_a_request_or_a_bad_message(request_: Request, data: st.DataObject) -> None:
    whole = bytearray(codec.encode(request_))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    decodes(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["hello", "pin", "commit", "evict", "other"]), st.lists(_values, max_size=5))
def test_well_formed_nonsense_is_a_request_or_a_bad_message(tag: str, fields: list[object]) -> None:
    decodes(pack([tag, *fields]))


def decodes(data: bytes) -> None:
    try:
        codec.decode_request(data)
    except codec.BadMessage as error:
        said, request_id = str(error), error.id
    else:
        return
    assert said
    assert type(request_id) is int
