"""The border between the event loop and whatever knows other hosts.

Owns the interface, and the answers of a daemon that knows none. Knows nothing of peers.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from nexuskv.errors import BadRequest
from nexuskv.protocol.fetches import FetchBlocks, FetchGroup
from nexuskv.protocol.hosts import Fetch, Fetched, GetPeers, Peers, Push
from nexuskv.protocol.messages import Message, Refused
from nexuskv.protocol.offers import GetOffers, Offers
from nexuskv_daemon.core.effects import Abroad

Deliver = Callable[[Message, Sequence[int]], None]
"""Takes a reply or notice, and the descriptors of the segments it names, which stay the caller's."""

Reply = Callable[[int, Message], None]
"""Sends a session a reply."""


class Outside(Protocol):
    """What the event loop tells of. Nothing here waits."""

    def perform(self, effect: Abroad) -> None:
        """Begins what a client asked for; its reply comes later."""
        ...

    def dropped(self, segment: int) -> None:
        """A segment is about to go: nobody may read it any more."""
        ...


class Alone:
    """A daemon without peers: every fetch finds nothing, at once."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def perform(self, effect: Abroad) -> None:
        """Answers at once."""
        self._reply(effect.session, answer(effect.request, LONELY))

    def dropped(self, segment: int) -> None:
        """Nobody to tell."""


LONELY = "this daemon has no peers: start nexuskvd with --peer or --directory"


def answer(request: Fetch | FetchBlocks | FetchGroup | GetOffers | Push | GetPeers, why: str) -> Message:
    """The reply when no other host can be asked."""
    match request:
        case Fetch() | FetchBlocks() | FetchGroup():
            return Fetched(request.id, 0, 0, "", why)
        case Push():
            return Refused(request.id, BadRequest.code, why)
        case GetPeers():
            return Peers(request.id, [], "none")
        case GetOffers():
            return Offers(request.id, [])
