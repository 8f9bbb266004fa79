"""What is asked of other hosts, through the daemon: what they offer, pages to pull here, pages to be pulled there.

Owns the time limits and the splitting of long chains into messages. No byte of a page passes here, and nothing is
held: what came is found by the next match.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from nexuskv.client.hit import Keys
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.session import Session
from nexuskv.contract import AllPages, Descriptor
from nexuskv.errors import DeadlineExceeded, Disconnected
from nexuskv.gain import MeasuredPath, Offer
from nexuskv.protocol import hosts as h
from nexuskv.protocol import messages as m
from nexuskv.protocol.cost import ComputeCost
from nexuskv.protocol.fetches import BlockName, FetchBlocks, FetchGroup, MemberKeys
from nexuskv.protocol.offers import ROUND_TRIPS, GetOffers, Offers, PeerOffer

R = TypeVar("R", bound=m.Message)
FETCH_SECONDS = 5.0
PREFETCH_SECONDS = 30.0
OFFER_SECONDS = 1.0
MOST_SECONDS = 86400.0
"""Longer time limits, infinite ones too, are a day."""
LEAST_LATENCY = 1e-9
"""Seconds: a path takes some time, though its latency was not measured yet."""
GRACE_SECONDS = 0.5
"""Past the time limit, for the daemon's own answer: it keeps the limit itself, unless it is stopped."""


class Fetched(NamedTuple):
    """What a fetch brought: pages and bytes, from which peer, and why not more ("" when nothing is absent now)."""

    pages: int
    bytes: int
    source: str
    reason: str


class Pushed(NamedTuple):
    """How many leading pages the peer has now, and why not more."""

    pages: int
    reason: str


class Plan(NamedTuple):
    """Pages of one chain from its root, and what computing them costs."""

    descriptor: Descriptor
    keys: Keys
    cost: ComputeCost

    def requests(self, until: float) -> Iterator[h.Fetch]:
        """One request for every MAX_KEYS keys; where one page restores all before it, the last ones will do."""
        for at, chunk, parent in _chunks(self.keys, chained=isinstance(self.descriptor.reuse, AllPages)):
            yield h.Fetch(
                0, self.descriptor.descriptor_id, chunk, _milliseconds(until), parent, at, self.cost
            )


class BlockPlan(NamedTuple):
    """Blocks of one layer of pages."""

    descriptor: Descriptor
    layer: int
    wanted: Sequence[BlockName]

    def requests(self, until: float) -> Iterator[FetchBlocks]:
        """One request for every MAX_KEYS blocks."""
        for at in range(0, len(self.wanted), m.MAX_KEYS):
            some = list(self.wanted[at : at + m.MAX_KEYS])
            yield FetchBlocks(0, self.descriptor.descriptor_id, self.layer, some, _milliseconds(until))


class GroupPlan(NamedTuple):
    """Boundaries of a group from the start of a sequence; `pages` of each member lie between two."""

    descriptors: Sequence[Descriptor]
    keys: Sequence[Keys]
    pages: Sequence[int]
    boundaries: int

    def requests(self, until: float) -> Iterator[FetchGroup]:
        """As many boundaries a request as a message takes: of each request, the last one that a peer has comes."""
        step = m.MAX_KEYS // sum(self.pages)
        for first in range(0, self.boundaries, step):
            stop = min(first + step, self.boundaries)
            members = [
                MemberKeys(
                    each.descriptor_id,
                    list(keys[first * n : stop * n]),
                    keys[first * n - 1] if first else b"",
                )
                for each, keys, n in zip(self.descriptors, self.keys, self.pages, strict=True)
            ]
            yield FetchGroup(0, stop - first, members, _milliseconds(until))


def _chunks(keys: Keys, *, chained: bool) -> Iterator[tuple[int, list[bytes], bytes]]:
    """Place, keys and the key before, of what fits a message."""
    first = 0 if chained else max(0, len(keys) - m.MAX_KEYS)
    for at in range(first, len(keys), m.MAX_KEYS):
        yield at, list(keys[at : at + m.MAX_KEYS]), keys[at - 1] if at else b""


def _until(seconds: float) -> float:
    return time.monotonic() + max(0.0, min(seconds, MOST_SECONDS))


def _milliseconds(until: float) -> int:
    return max(1, int((until - time.monotonic()) * 1000))


Asked = h.Fetch | FetchBlocks | FetchGroup | GetOffers | h.Push


def _ask(request: Asked, expected: type[R], session: Session) -> R:
    return session.call(msgspec.structs.replace(request, id=session.number()), expected)


def _aside(keeper: SessionKeeper, request: Asked, expected: type[R]) -> R:
    seconds = request.milliseconds / 1000 + GRACE_SECONDS
    return keeper.aside(partial(_ask, request, expected), seconds)


def fetch(keeper: SessionKeeper, plan: Plan | BlockPlan | GroupPlan, within: float | None) -> Fetched:
    """Waits for what comes; other hosts' faults and a daemon that is gone are a reason, not an error. Raises Closed."""
    until = _until(FETCH_SECONDS if within is None else within)
    total = Fetched(0, 0, "", "")
    for request in plan.requests(until):
        try:
            came = _aside(keeper, request, h.Fetched)
        except (Disconnected, DeadlineExceeded) as error:
            return total._replace(reason=str(error))
        pages, nbytes = total.pages + came.pages, total.bytes + came.bytes
        total = Fetched(pages, nbytes, came.source or total.source, came.reason)
        if came.reason:
            break
    return total


def prefetch(keeper: SessionKeeper, plan: Plan | GroupPlan) -> None:
    """Asks and does not wait. Raises Closed, Disconnected."""
    until = _until(PREFETCH_SECONDS)

    def ask(session: Session) -> None:
        for request in plan.requests(until):
            session.tell(request)

    keeper.use(ask)


def offers(keeper: SessionKeeper, descriptor: Descriptor, keys: Keys, have: int) -> list[Offer]:
    """What peers have beyond the `have` pages that are a boundary here, and what each way to them costs.

    None too, when there is no daemon to ask, or none that answers in time. Raises Closed.
    """
    chained = isinstance(descriptor.reuse, AllPages)
    if not chained:
        start = max(0, len(keys) - m.MAX_KEYS)
        found = _offered(keeper, descriptor, keys[start:])
        return [_offer(each, start + each.stop) for each in found]
    best: dict[str, Offer] = {}
    for start in range(have, len(keys), m.MAX_KEYS):
        chunk = keys[start : start + m.MAX_KEYS]
        found = _offered(keeper, descriptor, chunk)
        # Only who has all before it can send what comes after.
        found = [each for each in found if start == have or _reaches(best.get(each.address), start)]
        best.update((each.address, _offer(each, start + each.stop)) for each in found)
        if not any(each.stop == len(chunk) for each in found):
            break
    return list(best.values())


def _reaches(offer: Offer | None, pages: int) -> bool:
    return offer is not None and offer.pages >= pages


def _offered(keeper: SessionKeeper, descriptor: Descriptor, keys: Keys) -> list[PeerOffer]:
    if not keys:
        return []
    request = GetOffers(0, descriptor.descriptor_id, list(keys), int(OFFER_SECONDS * 1000))
    try:
        return _aside(keeper, request, Offers).offers
    except (Disconnected, DeadlineExceeded):
        return []


def _offer(told: PeerOffer, pages: int) -> Offer:
    return Offer(told.address, pages, way_of(told))


def way_of(told: PeerOffer | h.PeerStats) -> MeasuredPath | None:
    """The way to a peer as its daemon measured it; None as long as it did not."""
    if not told.bandwidth:
        return None
    return MeasuredPath(told.path, max(ROUND_TRIPS * told.latency, LEAST_LATENCY), told.bandwidth)


def push(keeper: SessionKeeper, keys: Keys, peer: str, within: float | None) -> Pushed:
    """Waits until the peer has the pages. Raises BadRequest, Closed, Disconnected, DeadlineExceeded."""
    until = _until(FETCH_SECONDS if within is None else within)
    pages, reason = 0, ""
    for at, chunk, parent in _chunks(keys, chained=True):
        there = _aside(keeper, h.Push(0, chunk, peer, _milliseconds(until), parent), h.Pushed)
        pages, reason = at + there.pages, there.reason
        if there.pages < len(chunk):
            break
    return Pushed(pages, reason)
