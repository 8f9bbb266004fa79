"""The cache of one descriptor and model: keys, hits, reservations.

Owns the key chain's root and the splitting of long calls into messages. Everything it returns belongs to the session
that was alive when it was made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from nexuskv import contract
from nexuskv.client.hit import Hit, Part
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.reservation import Reservation
from nexuskv.client.session import Session
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
        self.descriptor = descriptor
        self.model = model
        self.root = contract.chain_root(descriptor.digest, model, session.welcome.tenant, salt)

    def keys(self, token_ids: contract.TokenIds) -> list[bytes]:
        """Page keys of a token sequence: 32 bytes for each full page, each chained to the one before."""
        return contract.page_keys(self.root, token_ids, self.descriptor.page_tokens)

    def match(self, keys: Sequence[bytes]) -> Hit:
        """Pins the longest restorable boundary of `keys` (its resident prefix, for attention); may be empty.

        The hit must be closed: use it in a `with`. Raises Disconnected, DeadlineExceeded.
        """
        session = self._keeper.session
        if len(keys) <= m.MAX_KEYS:
            pinned = self._pin(session, keys)
            return Hit(session, self.descriptor, keys, [Part(pinned.hit, pinned.start, pinned.handles)])
        return self._match_long(session, keys)

    def lookup(self, keys: Sequence[bytes]) -> int:
        """The boundary that `match` would find now, in pages. Pins and refreshes nothing."""
        session = self._keeper.session
        if len(keys) > m.MAX_KEYS:
            return self._usable(b"".join(found.states for found in self._found(keys))).stop
        request = m.Measure(session.number(), self._arena(session), list(keys))
        return session.call(request, m.Measured).stop

    def status(self, keys: Sequence[bytes]) -> list[PageStatus]:
        """For each key whether it is present, being written, or absent and why. Pins and refreshes nothing."""
        return [status for found in self._found(keys) for status in _statuses(found)]

    def reserve(self, keys: Sequence[bytes], *, parent: bytes = b"") -> Reservation:
        """Slots for the absent pages of a chain, all of them or none; use it in a `with`.

        `keys` starts at the root of a chain, unless `parent`, the key of a resident page, comes before it. Pages that
        are resident, or that somebody else is writing, are not among the result's. Raises ArenaFull, ParentMissing.
        """
        session = self._keeper.session
        reservation = Reservation(session, self.descriptor)
        chained = isinstance(self.descriptor.reuse, contract.AllPages)
        try:
            for at in range(0, len(keys), m.MAX_KEYS):
                chunk = keys[at : at + m.MAX_KEYS]
                if not reservation.extend(self._arena(session), list(chunk), parent, at) and chained:
                    break  # nothing can hang below a page that somebody else may still abort
                parent = chunk[-1]
        except BaseException:
            reservation.abort()
            raise
        return reservation

    def _arena(self, session: Session) -> int:
        return session.arena(self.descriptor)

    def _pin(self, session: Session, keys: Sequence[bytes], *, whole: bool = False) -> m.Pinned:
        request = m.Pin(session.number(), self._arena(session), list(keys), whole)
        return session.call(request, m.Pinned)

    def _found(self, keys: Sequence[bytes]) -> Iterator[m.Found]:
        session = self._keeper.session
        for at in range(0, len(keys), m.MAX_KEYS):
            request = m.Lookup(session.number(), self._arena(session), list(keys[at : at + m.MAX_KEYS]))
            yield session.call(request, m.Found)

    def _usable(self, states: bytes) -> range:
        present = [state == m.PRESENT for state in states]
        return contract.usable(self.descriptor.reuse, present, self.descriptor.page_tokens)

    def _match_long(self, session: Session, keys: Sequence[bytes]) -> Hit:
        """More keys than one message takes: look first, then pin just those; what went meanwhile is looked for anew."""
        while True:
            chosen = self._usable(b"".join(found.states for found in self._found(keys)))
            with contextlib.ExitStack() as undo:
                hit = undo.enter_context(Hit(session, self.descriptor, keys, []))
                for at in range(chosen.start, chosen.stop, m.MAX_KEYS):
                    stop = min(at + m.MAX_KEYS, chosen.stop)
                    pinned = self._pin(session, keys[at:stop], whole=True)
                    if not pinned.hit:
                        break
                    hit.extend(Part(pinned.hit, at, pinned.handles))
                if len(hit) == len(chosen):
                    undo.pop_all()
                    return hit


def _statuses(found: m.Found) -> Iterator[PageStatus]:
    owners = {position: name for name, positions in found.others.items() for position in positions}
    for position, state in enumerate(found.states):
        if state == m.OTHER_DESCRIPTOR:
            yield PageStatus("absent", f"belongs to descriptor {owners[position]}")
        else:
            yield _STATUS[state]
