"""The bytes of every message about other hosts, spelled out: a change of these is a change of the protocol version."""

import pytest

from nexuskv.protocol import codec
from nexuskv.protocol import fetches as f
from nexuskv.protocol import hosts as h
from nexuskv.protocol import messages as m
from nexuskv.protocol.cost import ComputeCost
from nexuskv.protocol.language import Reply, Request

KEY = bytes(range(32))
KEY_HEX = "c420" + KEY.hex()

REQUESTS: list[tuple[Request, str]] = [
    (
        h.Fetch(14, "a", [KEY], 500, KEY, 3, ComputeCost(0.5, 0.25)),
        f"98 a56665746368 0e a161 91{KEY_HEX} cd01f4 {KEY_HEX} 03 92 cb3fe0000000000000 cb3fd0000000000000",
    ),
    (
        f.FetchBlocks(17, "a", 3, [f.BlockName(KEY, 300), f.BlockName(KEY, -1)], 500),
        f"96 ac66657463685f626c6f636b73 11 a161 03 92 92{KEY_HEX}cd012c 92{KEY_HEX}ff cd01f4",
    ),
    (
        f.FetchGroup(18, 1, [f.MemberKeys("a", [KEY], b""), f.MemberKeys("b", [KEY], KEY)], 500),
        (f"95 ab66657463685f67726f7570 12 01 92 93a161 91{KEY_HEX} c400 93a162 91{KEY_HEX} {KEY_HEX} cd01f4"),
    ),
    (h.Push(15, [KEY], "b", 500, b""), f"96 a470757368 0f 91{KEY_HEX} a162 cd01f4 c400"),
    (h.GetPeers(16), "92 a57065657273 10"),
]
REPLIES: list[tuple[Reply, str]] = [
    (h.Fetched(14, 2, 4096, "b", ""), "96 a766657463686564 0e 02 cd1000 a162 a0"),
    (h.Pushed(15, 1, "gone"), "94 a6707573686564 0f 01 a4676f6e65"),
    (
        h.Peers(
            16,
            [
                h.PeerStats(
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
                    [h.PathStats("tcp", 0.5, 0.25, 2, "")],
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
]


@pytest.mark.parametrize(("message", "golden"), REQUESTS)
def test_bytes_of_requests(message: Request, golden: str) -> None:
    assert codec.encode(message).hex() == golden.replace(" ", "")
    assert codec.decode_request(bytes.fromhex(golden)) == message


@pytest.mark.parametrize(("message", "golden"), REPLIES)
def test_bytes_of_replies(message: Reply, golden: str) -> None:
    assert codec.encode(message).hex() == golden.replace(" ", "")
    assert codec.decode_reply(bytes.fromhex(golden)) == message


def test_every_kind_of_message_has_its_bytes_here() -> None:
    defined = [*vars(h).values(), *vars(f).values()]
    ours = {kind for kind in defined if isinstance(kind, type) and issubclass(kind, m.Message)}
    golden = {type(message) for message, _ in [*REQUESTS, *REPLIES]}

    assert golden == ours - {m.Message}
