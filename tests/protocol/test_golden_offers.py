"""The bytes of every message about offers, spelled out: a change of these is a change of the protocol version."""

import pytest

from nexuskv.protocol import codec
from nexuskv.protocol import offers as o

KEY = bytes(range(32))
KEY_HEX = "c420" + KEY.hex()
HALF, QUARTER = "cb3fe0000000000000", "cb3fd0000000000000"


def test_bytes_of_the_request() -> None:
    golden = f"95 aa6765745f6f6666657273 03 a161 91{KEY_HEX} cd01f4".replace(" ", "")
    message = o.GetOffers(3, "a", [KEY], 500)
    assert codec.encode(message).hex() == golden
    assert codec.decode_request(bytes.fromhex(golden)) == message


def test_bytes_of_the_reply() -> None:
    golden = f"93 a66f6666657273 03 91 95 a161 a3746370 02 {HALF} {QUARTER}".replace(" ", "")
    message = o.Offers(3, [o.PeerOffer("a", "tcp", 2, 0.5, 0.25)])
    assert codec.encode(message).hex() == golden
    assert codec.decode_reply(bytes.fromhex(golden)) == message


def test_offers_of_no_pages_are_not_asked_for() -> None:
    with pytest.raises(codec.BadMessage, match="get_offers"):
        codec.decode_request(codec.encode(o.GetOffers(3, "a", [], 500)))
