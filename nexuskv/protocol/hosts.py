"""Messages about other hosts: pages to be pulled from there or to there, and how these hosts are.

Owns their wire form, which follows the rules of `messages`. The daemon answers them when the other host did, or when
the time is up.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from nexuskv.contract.descriptor import DescriptorId
from nexuskv.protocol.cost import ComputeCost
from nexuskv.protocol.messages import KEY_BYTES, U32, Keys, Message


class Fetch(Message, frozen=True, tag="fetch"):
    """Asks that the absent part of `keys`, pages of the descriptor with that id, be pulled from another host.

    Answered within `milliseconds`, with what came by then. `parent` is the page before `keys[0]`, empty at the root,
    and `before` how many pages come before it. What would take longer to pull than `cost` is not pulled.
    """

    descriptor: DescriptorId
    keys: Keys
    milliseconds: U32
    parent: Annotated[bytes, Meta(max_length=KEY_BYTES)]
    before: U32
    cost: ComputeCost


class Push(Message, frozen=True, tag="push"):
    """Asks that `peer`, an address or instance name, be told to pull `keys` from here; answered when it has them.

    `parent` is the page before `keys[0]`, empty at the root of the chain.
    """

    keys: Keys
    peer: Annotated[str, Meta(max_length=300)]
    milliseconds: U32
    parent: Annotated[bytes, Meta(max_length=KEY_BYTES)]


class GetPeers(Message, frozen=True, tag="peers"):
    """Asks for the figures of all other hosts that the daemon knows."""


class Fetched(Message, frozen=True, tag="fetched"):
    """Answers `Fetch`, `FetchBlocks` and `FetchGroup`: pages and bytes pulled, from which peer, and why not more.

    The reason is empty when nothing is absent now.
    """

    pages: int
    bytes: int
    source: str
    reason: str


class Pushed(Message, frozen=True, tag="pushed"):
    """Answers `Push`: how many leading pages of the keys the peer has now, and why not more."""

    pages: int
    reason: str


class PathStats(msgspec.Struct, frozen=True):
    """Pulls from a peer over one transport: averages as those of `PeerStats`, bytes pulled, why it is not taken."""

    name: str
    latency: float
    bandwidth: float
    bytes_in: int
    trouble: str


class PeerStats(msgspec.Struct, frozen=True):
    """Another host. `state` is connected, connecting, resting (it failed lately), gone, or myself.

    `latency` in seconds and `bandwidth` in bytes a second are moving averages of pulls over `path`, 0 when unknown;
    counters run since the daemon's start. `bad_pages` came with another checksum or length than was told, and were
    dropped. `trouble` is what last went wrong, "" if nothing did. `paths` are all that pages could come over.
    """

    address: str
    instance: str
    state: str
    path: str
    latency: float
    bandwidth: float
    pages_in: int
    bytes_in: int
    pages_out: int
    bad_pages: int
    failures: int
    trouble: str
    paths: list[PathStats]


class Peers(Message, frozen=True, tag="peerlist"):
    """Answers `GetPeers`. `directory` says how it is: none, up, or why it is not asked just now."""

    peers: list[PeerStats]
    directory: str
