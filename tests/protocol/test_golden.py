"""The bytes of every message, spelled out: a change of these is a change of the protocol version.

A C client reads and writes just these. `92 a5 "stats" 09` is an array of two: the tag, and the request id 9.
"""

import msgspec
import pytest

from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Notice, Reply, Request
from nexuskv.protocol.stats import ArenaStats, TenantStats

KEY = bytes(range(32))
KEY_HEX = "c420" + KEY.hex()
HANDLE = 1 << 32 | 2  # segment 1, slot 2
HANDLE_HEX = "cf0000000100000002"

REQUESTS: list[tuple[Request, str]] = [
    (m.Hello(1, 1, "c"), "94 a568656c6c6f 01 01 a163"),
    (m.Register(2, b"\x80"), "93 a87265676973746572 02 c40180"),
    (m.Lookup(3, 1, [KEY]), f"94 a66c6f6f6b7570 03 01 91{KEY_HEX}"),
    (m.Measure(3, 1, [KEY]), f"94 a76d656173757265 03 01 91{KEY_HEX}"),
    (m.Pin(4, 1, [KEY]), f"96 a370696e 04 01 91{KEY_HEX} c2 90"),
    (m.Pin(4, 1, [KEY], whole=True, released=[7, 9]), f"96 a370696e 04 01 91{KEY_HEX} c3 92 07 09"),
    (m.Reserve(5, 1, [KEY]), f"96 a772657365727665 05 01 91{KEY_HEX} c400 00"),
    (m.Reserve(5, 1, [KEY], KEY, 7), f"96 a772657365727665 05 01 91{KEY_HEX} {KEY_HEX} 07"),
    (
        m.ReserveGroup(8, 1, [m.Part(1, [KEY]), m.Part(2, [KEY], KEY)], 7),
        f"95 ad726573657276655f67726f7570 08 01 92 93 01 91{KEY_HEX} c400 93 02 91{KEY_HEX} {KEY_HEX} 07",
    ),
    (m.Commit(6, 7, [0, 300]), "95 a6636f6d6d6974 06 07 9200cd012c c2"),
    (m.Commit(6, 7, [], rest=True), "95 a6636f6d6d6974 06 07 90 c3"),
    (m.Abort(7, 7), "93 a561626f7274 07 07"),
    (m.Release(0, [1, 2]), "93 a772656c65617365 00 920102"),
    (m.GetStats(9), "93 a57374617473 09 00"),
    (m.Attach(2), "92 a6617474616368 02"),
    (m.Map(12, [2, 3]), "93 a36d6170 0c 920203"),
    (m.Drain(13), "92 a5647261696e 0d"),
    (m.Evict(10, "d", 4096, everything=True), "95 a56576696374 0a a164 cd1000 c3"),
    (
        m.Fetch(14, KEY, [KEY], 500, KEY, 3, m.ComputeCost(0.5, 0.25)),
        f"98 a56665746368 0e {KEY_HEX} 91{KEY_HEX} cd01f4 {KEY_HEX} 03 92 cb3fe0000000000000 cb3fd0000000000000",
    ),
    (m.Push(15, [KEY], "b", 500, b""), f"96 a470757368 0f 91{KEY_HEX} a162 cd01f4 c400"),
    (m.GetPeers(16), "92 a57065657273 10"),
]

ARENA = ArenaStats("d", "t", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
TENANT = TenantStats("t", 1, 2, 3, 4, 5, 6)
REPLIES: list[tuple[Reply | Notice, str]] = [
    (m.Welcome(1, 1, 5, "i", "uid:0", "0.1"), "97 a777656c636f6d65 01 01 05 a169 a57569643a30 a3302e31"),
    (m.Registered(2, 1), "93 aa72656769737465726564 02 01"),
    (m.Fetched(14, 2, 4096, "b", ""), "96 a766657463686564 0e 02 cd1000 a162 a0"),
    (m.Pushed(15, 1, "gone"), "94 a6707573686564 0f 01 a4676f6e65"),
    (
        m.Peers(
            16,
            [
                m.PeerStats(
                    "a",
                    "i",
                    "gone",
                    "tcp",
                    0.5,
                    0.25,
                    1,
                    2,
                    3,
                    4,
                    5,
                    "",
                    [m.PathStats("tcp", 0.5, 0.25, 2, "")],
                )
            ],
            "none",
        ),
        (
            "94 a8706565726c697374 10 91 8d"
            " a761646472657373 a161 a8696e7374616e6365 a169 a57374617465 a4676f6e65 a470617468 a3746370"
            " a76c6174656e6379 cb3fe0000000000000 a962616e647769647468 cb3fd0000000000000 a870616765735f696e 01"
            " a862797465735f696e 02 a970616765735f6f7574 03 a96261645f7061676573 04 a86661696c75726573 05"
            " a774726f75626c65 a0 a57061746873 91 85 a46e616d65 a3746370 a76c6174656e6379 cb3fe0000000000000"
            " a962616e647769647468 cb3fd0000000000000 a862797465735f696e 02 a774726f75626c65 a0 a46e6f6e65"
        ),
    ),
    (m.Found(3, b"\0\1"), "94 a5666f756e64 03 c4020001 80"),
    (m.Found(3, b"\3", {"d": [0]}), "94 a5666f756e64 03 c40103 81a1649100"),
    (m.Measured(3, 1, 5), "94 a86d65617375726564 03 01 05"),
    (m.Pinned(4, 1, 0, [HANDLE], 3), f"96 a670696e6e6564 04 01 00 91{HANDLE_HEX} 03"),
    (m.Reserved(5, 7, [0], [HANDLE], 2), f"96 a87265736572766564 05 07 9100 91{HANDLE_HEX} 02"),
    (
        m.ReservedGroup(8, 7, [0], [[0], []], [[HANDLE], []], 2),
        f"97 ae72657365727665645f67726f7570 08 07 9100 92 9100 90 92 91{HANDLE_HEX} 90 02",
    ),
    (m.Committed(6, 2), "93 a9636f6d6d6974746564 06 02"),
    (m.Done(7), "92 a4646f6e65 07"),
    (m.Evicted(10, 2, 8192, 1), "95 a765766963746564 0a 02 cd2000 01"),
    (m.Refused(11, "c", "m", {"n": 1}), "95 a772656675736564 0b a163 a16d 81a16e01"),
    (m.Segments(0, [m.Segment(1, 1, 16, 4096, True)]), "93 a87365676d656e7473 00 91 95 01 01 10 cd1000 c3"),
    (m.Dropped(0, [1]), "93 a764726f70706564 00 9101"),
    (m.Attached(2, 7), "93 a86174746163686564 02 07"),
    (
        m.Stats(9, "i", "0.1", 5, 1.5, 64, 32, 2, [ARENA], [TENANT], 3),
        (
            "9c a57374617473 09 a169 a3302e31 05 cb3ff8000000000000 40 20 02 91 de0011"
            "ad64657363726970746f725f6964 a164  a674656e616e74 a174  a87365676d656e7473 01  a56279746573 02"
            "aa706167655f6279746573 03  aa736c6f745f6279746573 04  a5736c6f7473 05  a466726565 06"
            "a87265736964656e74 07  a777726974696e67 08  a87265746972696e67 09"
            "a9636f6d6d6974746564 0a  a761626f72746564 0b  a765766963746564 0c"
            "a86272616e63686573 0d  ab6272616e63685f74697073 0e  a6636f70696564 0f"
            "91 87 a674656e616e74 a174  a468697473 01  a66d6973736573 02  a670696e6e6564 03  a7656e7472696573 04"
            "ad696e6465785f656e7472696573 05  a970696e735f66756c6c 06  03"
        ),
    ),
]


@pytest.mark.parametrize(("message", "golden"), REQUESTS)
def test_bytes_of_requests(message: Request, golden: str) -> None:
    assert codec.encode(message).hex() == golden.replace(" ", "")
    assert codec.decode_request(bytes.fromhex(golden)) == message


@pytest.mark.parametrize(("message", "golden"), REPLIES)
def test_bytes_of_replies_and_notices(message: Reply | Notice, golden: str) -> None:
    assert codec.encode(message).hex() == golden.replace(" ", "")
    assert codec.decode_reply(bytes.fromhex(golden)) == message


def test_every_kind_of_message_has_its_bytes_here() -> None:
    ours = {kind for kind in vars(m).values() if isinstance(kind, type) and issubclass(kind, m.Message)}
    golden = {type(message) for message, _ in [*REQUESTS, *REPLIES]}

    assert golden == ours - {m.Message}


def test_fields_with_a_default_may_be_left_out() -> None:
    assert codec.decode_request(bytes.fromhex("93a568656c6c6f0101")) == m.Hello(1, 1, "")
    assert codec.decode_request(bytes.fromhex(f"94a370696e040191{KEY_HEX}")) == m.Pin(4, 1, [KEY])


def test_a_request_is_no_reply() -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.decode_reply(codec.encode(m.Hello(1, 1)))


def test_limits_and_states_that_others_compile_in() -> None:
    assert (m.PROTOCOL_VERSION, m.KEY_BYTES, m.MAX_KEYS, m.MAX_MESSAGE_BYTES) == (1, 32, 4096, 196608)
    states = (m.PRESENT, m.NEVER_SEEN, m.EVICTED, m.OTHER_DESCRIPTOR, m.BEING_WRITTEN)
    assert states == (0, 1, 2, 3, 4)
