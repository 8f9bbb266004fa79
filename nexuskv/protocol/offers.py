"""Messages by which a pull is weighed before it is made: which peers have more of a chain, and how quick each is.

Owns their wire form, which follows the rules of `messages`. Nothing is moved, pinned or reserved for them.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from nexuskv.contract.descriptor import DescriptorId
from nexuskv.protocol.messages import U32, Keys, Message

ROUND_TRIPS = 2
"""Of a pull, beside the bytes: one to pin the pages there, one to pull them."""


class GetOffers(Message, frozen=True, tag="get_offers"):
    """Asks which peers have some of `keys`, pages of the descriptor with that id: those that a fetch would ask.

    Answered within `milliseconds`, with those that told by then.
    """

    descriptor: DescriptorId
    keys: Annotated[Keys, Meta(min_length=1)]
    milliseconds: U32


class PeerOffer(msgspec.Struct, array_like=True, frozen=True):
    """`keys[:stop]` make a boundary at the peer at `address`, whose pages come over `path`, "tcp" or "rdma".

    `latency` of a round trip in seconds and `bandwidth` in bytes a second are as in `PeerStats`: a bandwidth of 0 says
    that no pull has measured it yet. A pull of n bytes takes about ROUND_TRIPS * latency + n / bandwidth.
    """

    address: str
    path: str
    stop: int
    latency: float
    bandwidth: float


class Offers(Message, frozen=True, tag="offers"):
    """Answers `GetOffers`, who has most first."""

    offers: list[PeerOffer]
