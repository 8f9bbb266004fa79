"""The cache of one descriptor and model: keys, hits, reservations.

Owns the key chain's root and the splitting of long calls into messages. A hit or reservation belongs to the session
that it was made in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from nexuskv import contract
from nexuskv.client.hit import Hit
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.pinned import AskedWay, SharedWay, Way
from nexuskv.client.reservation import Reservation
from nexuskv.client.session import Session
from nexuskv.errors import Disconnected
from nexuskv.native import Moved
from nexuskv.protocol import messages as m


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
        session = keeper.session
        session.arena(descriptor)
        self._keeper = keeper
        self._registered = session
        self._reading = _way(session)
        self.descriptor = descriptor
        self.model = model
        self.root = contract.chain_root(descriptor.digest, model, session.welcome.tenant, salt)

    def keys(self, token_ids: contract.TokenIds) -> list[bytes]:
        """Page keys of a token sequence: 32 bytes for each full page, each chained to the one before."""
        return contract.page_keys(self.root, token_ids, self.descriptor.page_tokens)

    def match(self, keys: Sequence[bytes]) -> Hit:
        """Pins the longest restorable boundary of `keys` (its resident prefix, for attention); may be empty.

        Takes no message and no system call, once the segments are mapped, and works while the daemon is stopped or
        dead. The hit must be closed: use it in a `with`. Raises PinsFull, Disconnected.
        """
        try:
            return self._match(keys)
        except Moved:  # this daemon's successor started afresh
            self._registered.close()
            return self._match(keys)

    def lookup(self, keys: Sequence[bytes]) -> int:
        """The boundary that `match` would find now, in pages. Pins and refreshes nothing."""
        try:
            return self._boundary(keys)
        except Moved:
            self._registered.close()
            return self._boundary(keys)

    def status(self, keys: Sequence[bytes]) -> list[PageStatus]:
        """For each key whether it is present, being written, or absent and why. Pins and refreshes nothing.

        Only why a page is absent is asked of the daemon. Raises Disconnected.
        """
        if self.lookup(keys) == len(keys) and isinstance(self.descriptor.reuse, contract.AllPages):
            return [_STATUS[m.PRESENT]] * len(keys)
        found = self._keeper.use(lambda session: list(session.find(self.descriptor, keys)))
        return [status for answer in found for status in _statuses(answer)]

    def reserve(self, keys: Sequence[bytes], *, parent: bytes = b"") -> Reservation:
        """Slots for the absent pages of a chain, all of them or none; use it in a `with`.

        `keys` starts at the root of a chain, unless `parent`, the key of a resident page, comes before it. Pages that
        are resident, or that somebody else is writing, are not among the result's. Raises ArenaFull, ParentMissing.
        """
        return self._keeper.use(lambda session: self._reserve(session, keys, parent))

    def _reserve(self, session: Session, keys: Sequence[bytes], parent: bytes) -> Reservation:
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

    def _match(self, keys: Sequence[bytes]) -> Hit:
        way = self._way()
        session = self._registered
        pinned = way.pin(self.descriptor, keys)
        if session.alive:
            return Hit(session, self.descriptor, keys, pinned)
        # The connection ended, which may have kept pages from being mapped: a new one may do better.
        with contextlib.suppress(Disconnected):
            way = self._way()
            if self._registered is not session:
                pinned.pins.release()
                session, pinned = self._registered, way.pin(self.descriptor, keys)
        return Hit(session, self.descriptor, keys, pinned)

    def _boundary(self, keys: Sequence[bytes]) -> int:
        way = self._way()
        return way.boundary(self.descriptor, keys)

    def _way(self) -> Way:
        session = self._keeper.reading
        if session is not self._registered:
            session.arena(self.descriptor)
            self._registered, self._reading = session, _way(session)
        return self._reading


def _way(session: Session) -> Way:
    return AskedWay(session) if session.reader is None else SharedWay(session)


def _statuses(found: m.Found) -> Iterator[PageStatus]:
    owners = {position: name for name, positions in found.others.items() for position in positions}
    for position, state in enumerate(found.states):
        if state == m.OTHER_DESCRIPTOR:
            yield PageStatus("absent", f"belongs to descriptor {owners[position]}")
        else:
            yield _STATUS[state]
