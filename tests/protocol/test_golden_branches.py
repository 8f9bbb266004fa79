"""The bytes of every message about branches, spelled out: a change of these is a change of the protocol version."""

import msgspec
import pytest

from nexuskv.protocol import branches as b
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Reply, Request

KEY = bytes(range(32))
KEY_HEX = "c420" + KEY.hex()
HANDLE = 1 << 32 | 2  # segment 1, slot 2
HANDLE_HEX = "cf0000000100000002"
ROW = b.BranchRow(2, 1, 3, 4, 5, 6, True)
ROW_HEX = "97 02 01 03 04 05 06 c3"

REQUESTS: list[tuple[Request, str]] = [
    (b.OpenBranch(1, 2, KEY, KEY, 3), f"96 ab6f70656e5f6272616e6368 01 02 {KEY_HEX} {KEY_HEX} 03"),
    (b.AttachBranch(2, 7, 1, KEY), f"95 ad6174746163685f6272616e6368 02 07 01 {KEY_HEX}"),
    (b.Fork(3, 7, 4), "94 a4666f726b 03 07 04"),
    (b.Append(4, 7, b"", [KEY], 1, b"\1\0\0\0"), f"97 a6617070656e64 04 07 c400 91{KEY_HEX} 01 c40401000000"),
    (b.PublishBranch(5, 7), "94 ae7075626c6973685f6272616e6368 05 07 c3"),
    (b.DropBranches(0, [7, 8]), "93 a464726f70 00 920708"),
    (b.TraceBranch(6, 7, 1), "94 ac74726163655f6272616e6368 06 07 01"),
    (b.ListBranches(7, 1, KEY), f"95 ad6c6973745f6272616e63686573 07 01 {KEY_HEX} 00"),
    (b.GetPath(8, 7), "94 a470617468 08 07 c400"),
]
REPLIES: list[tuple[Reply, str]] = [
    (b.Branched(1, ROW, KEY, b""), f"95 a86272616e63686564 01 {ROW_HEX} {KEY_HEX} c400"),
    (b.Forked(3, 8, 4, 1, 9, KEY, b""), f"98 a6666f726b6564 03 08 04 01 09 {KEY_HEX} c400"),
    (b.Appending(4, 5, [0], [HANDLE]), f"96 a9617070656e64696e67 04 05 9100 91{HANDLE_HEX} ff"),
    (b.Branches(6, [ROW], 9), f"94 a86272616e63686573 06 91 {ROW_HEX} 09"),
    (b.Path(8, [KEY], True, 5, b""), f"96 a9706174685f6b657973 08 91{KEY_HEX} c3 05 c400"),
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
    ours = {kind for kind in vars(b).values() if isinstance(kind, type) and issubclass(kind, m.Message)}
    golden = {type(message) for message, _ in [*REQUESTS, *REPLIES]}

    assert golden == ours - {m.Message}


@pytest.mark.parametrize(
    "refused",
    [
        b.Fork(1, 7, 0),
        b.Fork(1, 7, m.MAX_KEYS + 1),
        b.Append(1, 7, b"", [], 1),
        b.Append(1, 7, b"", [b"short"], 1),
        b.Append(1, 7, b"", [KEY], 1, bytes(b.MAX_TAIL_BYTES + 1)),
        b.DropBranches(1, [1] * (m.MAX_KEYS + 1)),
        b.TraceBranch(1, 7, 0),
        b.AttachBranch(1, -1, 1, KEY),
    ],
    ids=repr,
)
def test_what_is_out_of_bounds_is_no_request(refused: Request) -> None:
    with pytest.raises(codec.BadMessage) as caught:
        codec.decode_request(codec.encode(refused))
    assert not caught.value.fatal


def test_limits_that_others_compile_in() -> None:
    assert (b.MAX_HELD, b.MAX_TAIL_BYTES, b.BRANCHES_A_REPLY, b.NO_HANDLE) == (65536, 32768, 2000, -1)
    assert msgspec.msgpack.decode(codec.encode(b.Fork(1, 2, 3))) == ["fork", 1, 2, 3]
