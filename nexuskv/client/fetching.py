"""What is asked of other hosts, through the daemon: pages to pull here, and pages to be pulled there.

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
from nexuskv.protocol import messages as m
from nexuskv.protocol.fetches import BlockName, FetchBlocks, FetchGroup, MemberKeys

R = TypeVar("R", bound=m.Message)
FETCH_SECONDS = 5.0
PREFETCH_SECONDS = 30.0
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
    cost: m.ComputeCost

    def requests(self, until: float) -> Iterator[m.Fetch]:
        """One request for every MAX_KEYS keys; where one page restores all before it, the last ones will do."""
        for at, chunk, parent in _chunks(self.keys, chained=isinstance(self.descriptor.reuse, AllPages)):
            yield m.Fetch(0, self.descriptor.digest, chunk, _milliseconds(until), parent, at, self.cost)


class BlockPlan(NamedTuple):
    """Blocks of one layer of pages."""

    descriptor: Descriptor
    layer: int
    wanted: Sequence[BlockName]

    def requests(self, until: float) -> Iterator[FetchBlocks]:
        """One request for every MAX_KEYS blocks."""
        for at in range(0, len(self.wanted), m.MAX_KEYS):
            some = list(self.wanted[at : at + m.MAX_KEYS])
            yield FetchBlocks(0, self.descriptor.digest, self.layer, some, _milliseconds(until))


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
                    each.digest, list(keys[first * n : stop * n]), keys[first * n - 1] if first else b""
                )
                for each, keys, n in zip(self.descriptors, self.keys, self.pages, strict=True)
            ]
            yield FetchGroup(0, stop - first, members, _milliseconds(until))


def _chunks(keys: Keys, *, chained: bool) -> Iterator[tuple[int, list[bytes], bytes]]:
    """Place, keys and the key before, of what fits a message."""
    first = 0 if chained else max(0, len(keys) - m.MAX_KEYS)
    for at in range(first, len(keys), m.MAX_KEYS):
        yield at, list(keys[at : at + m.MAX_KEYS]), keys[at - 1] if at else b""


def _milliseconds(until: float) -> int:
    return max(1, int((until - time.monotonic()) * 1000))


def _ask(request: m.Fetch | FetchBlocks | FetchGroup | m.Push, expected: type[R], session: Session) -> R:
    return session.call(msgspec.structs.replace(request, id=session.number()), expected)


def _aside(
    keeper: SessionKeeper, request: m.Fetch | FetchBlocks | FetchGroup | m.Push, expected: type[R]
) -> R:
    seconds = request.milliseconds / 1000 + GRACE_SECONDS
    return keeper.aside(partial(_ask, request, expected), seconds)


def fetch(keeper: SessionKeeper, plan: Plan | BlockPlan | GroupPlan, within: float | None) -> Fetched:
    """Waits for what comes; other hosts' faults and a daemon that is gone are a reason, not an error. Raises Closed."""
    until = time.monotonic() + (FETCH_SECONDS if within is None else within)
    total = Fetched(0, 0, "", "")
    for request in plan.requests(until):
        try:
            came = _aside(keeper, request, m.Fetched)
        except (Disconnected, DeadlineExceeded) as error:
            return total._replace(reason=str(error))
        pages, nbytes = total.pages + came.pages, total.bytes + came.bytes
        total = Fetched(pages, nbytes, came.source or total.source, came.reason)
        if came.reason:
            break
    return total


def prefetch(keeper: SessionKeeper, plan: Plan | GroupPlan) -> None:
    """Asks and does not wait. Raises Closed, Disconnected."""
    until = time.monotonic() + PREFETCH_SECONDS

    def ask(session: Session) -> None:
        for request in plan.requests(until):
            session.tell(request)

    keeper.use(ask)


def push(keeper: SessionKeeper, keys: Keys, peer: str, within: float | None) -> Pushed:
    """Waits until the peer has the pages. Raises BadRequest, Closed, Disconnected, DeadlineExceeded."""
    until = time.monotonic() + (FETCH_SECONDS if within is None else within)
    pages, reason = 0, ""
    for at, chunk, parent in _chunks(keys, chained=True):
        there = _aside(keeper, m.Push(0, chunk, peer, _milliseconds(until), parent), m.Pushed)
        pages, reason = at + there.pages, there.reason
        if there.pages < len(chunk):
            break
    return Pushed(pages, reason)
