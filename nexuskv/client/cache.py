"""The cache of one descriptor and model: keys, hits, reservations.

Owns the key chain's root and the splitting of long calls into messages. A hit or reservation belongs to the session
that it was made in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

from nexuskv import contract
from nexuskv.client import fetching
from nexuskv.client.asked import AskedWay
from nexuskv.client.fetching import Fetched
from nexuskv.client.hit import Hit, Keys
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.reservation import Reservation
from nexuskv.client.session import Session
from nexuskv.client.shared import SharedWay
from nexuskv.errors import BadRequest, DeadlineExceeded, Disconnected
from nexuskv.native import Moved
from nexuskv.protocol import messages as m

Way = SharedWay | AskedWay


class PageStatus(NamedTuple):
    """What the daemon knows of a key; `reason` says why a page is absent, and is empty for one that is present."""

    state: Literal["present", "absent", "being_written"]
    reason: str


_STATUS = {
    m.PRESENT: PageStatus("present", ""),
    m.NEVER_SEEN: PageStatus("absent", "never seen, or evicted too long ago to be remembered"),
    m.EVICTED: PageStatus("absent", "evicted"),
    m.BEING_WRITTEN: PageStatus("being_written", "reserved, and not committed yet"),
}


class Cache:
    """Pages of one descriptor, model and salt in the tenant's arena."""

    def __init__(self, keeper: SessionKeeper, descriptor: contract.Descriptor, model: str, salt: str) -> None:
        self._way = keeper.use(lambda session: _way(session, descriptor))
        self._keeper = keeper
        self.descriptor = descriptor
        self.model = model
        self._cost = m.ComputeCost()
        self.root = contract.chain_root(descriptor.digest, model, self._way.session.welcome.tenant, salt)

    def keys(self, token_ids: contract.TokenIds) -> list[bytes]:
        """Page keys of a token sequence: 32 bytes for each full page, each chained to the one before."""
        return contract.page_keys(self.root, token_ids, self.descriptor.page_tokens)

    def match(self, keys: Keys, *, fetch: bool = False, within: float | None = None) -> Hit:
        """Pins the longest restorable boundary of `keys` (its resident prefix, for attention); may be empty.

        Takes no message and no system call, once the segments are mapped, and works while the daemon is stopped or
        dead. With `fetch`, what is absent is pulled from another host first, as by `fetch`. The hit must be closed: use
        it in a `with`. Raises PinsFull, Disconnected.
        """
        if fetch:
            return self._match_fetching(keys, within)
        way = self._way
        try:
            return (way if way.session.alive else self._choose()).match(keys)
        except Moved:  # this daemon's successor started afresh
            way.session.close()
        except Disconnected:  # it was asked, and is gone or was restarted
            pass
        except ValueError as error:
            raise _no_key(error) from error
        return self._choose().match(keys)

    def fetch(self, keys: Keys, *, within: float | None = None) -> Fetched:
        """Pulls what is absent of `keys` from the peer that has most of it; waits `within` seconds at most (5).

        What other hosts lack, do wrong or do too late is no error: fewer pages come, and `reason` says why. Raises
        Closed, Disconnected.
        """
        return fetching.fetch(self._keeper, self._plan(keys), within)

    def prefetch(self, keys: Keys) -> None:
        """As `fetch`, without waiting for it: a later match finds what came. Raises Closed, Disconnected."""
        fetching.prefetch(self._keeper, self._plan(keys))

    def declare_cost(self, seconds_per_token: float, seconds_per_token_squared: float = 0.0) -> None:
        """What computing costs this engine: n tokens after s take `n * (a + q * (2 s + n))` seconds.

        A fetch that would take longer, by what its path was measured to be, is not made.
        """
        self._cost = m.ComputeCost(seconds_per_token, seconds_per_token_squared)

    def _match_fetching(self, keys: Keys, within: float | None) -> Hit:
        hit = self.match(keys)
        if hit.stop == len(keys):
            return hit
        with hit:  # pinned meanwhile, so that what comes does not push out what it hangs from
            with contextlib.suppress(Disconnected, DeadlineExceeded):
                self.fetch(keys, within=within)
            return self.match(keys)

    def _plan(self, keys: Keys) -> fetching.Plan:
        self._keeper.use(lambda session: session.arena(self.descriptor))  # a restarted daemon learns of it
        return fetching.Plan(self.descriptor, keys, self._cost)

    def lookup(self, keys: Keys) -> int:
        """The boundary that `match` would find now, in pages. Pins and refreshes nothing."""
        way = self._choose()
        try:
            return way.boundary(keys)
        except Moved:
            way.session.close()
        except Disconnected:
            pass
        except ValueError as error:
            raise _no_key(error) from error
        return self._choose().boundary(keys)

    def status(self, keys: Keys) -> list[PageStatus]:
        """For each key whether it is present, being written, or absent and why. Pins and refreshes nothing.

        Only why a page is absent is asked of the daemon. Raises Disconnected.
        """
        if self.lookup(keys) == len(keys) and isinstance(self.descriptor.reuse, contract.AllPages):
            return [_STATUS[m.PRESENT]] * len(keys)
        found = self._keeper.use(lambda session: list(session.find(self.descriptor, keys)))
        return [status for answer in found for status in _statuses(answer)]

    def reserve(self, keys: Keys, *, parent: bytes = b"") -> Reservation:
        """Slots for the absent pages of a chain, all of them or none; use it in a `with`.

        `keys` starts at the root of a chain, unless `parent`, the key of a resident page, comes before it. Pages that
        are resident, or that somebody else is writing, are not among the result's. Raises ArenaFull, ParentMissing.
        """
        return self._keeper.use(lambda session: self._reserve(session, keys, parent))

    def _reserve(self, session: Session, keys: Keys, parent: bytes) -> Reservation:
        reservation = Reservation(session, self.descriptor)
        chained = isinstance(self.descriptor.reuse, contract.AllPages)
        try:
            for at in range(0, len(keys), m.MAX_KEYS):
                chunk = keys[at : at + m.MAX_KEYS]
                if (
                    not reservation.extend(session.arena(self.descriptor), list(chunk), parent, at)
                    and chained
                ):
                    break  # nothing can hang below a page that somebody else may still abort
                parent = chunk[-1]
        except BaseException:
            reservation.abort()
            raise
        return reservation

    def _choose(self) -> Way:
        """The way through the session to read with."""
        session = self._keeper.reading
        if session is not self._way.session:
            self._way = _way(session, self.descriptor)
        return self._way


def _way(session: Session, descriptor: contract.Descriptor) -> Way:
    session.arena(descriptor)  # registers it, which is what attaches the session to the shared index
    return SharedWay(session, descriptor) if session.shared else AskedWay(session, descriptor)


def _no_key(error: ValueError) -> BadRequest:
    return BadRequest(f"{error}: compute keys with the cache that they are for")


def _statuses(found: m.Found) -> Iterator[PageStatus]:
    owners = {position: name for name, positions in found.others.items() for position in positions}
    for position, state in enumerate(found.states):
        if state == m.OTHER_DESCRIPTOR:
            yield PageStatus("absent", f"belongs to descriptor {owners[position]}")
        else:
            yield _STATUS[state]
