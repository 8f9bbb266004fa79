"""The cache of one descriptor and model: keys, hits, reservations.

Owns the root of its keys and the splitting of long calls into messages. A hit or reservation belongs to the session
that it was made in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from nexuskv import contract
from nexuskv.client.asked import AskedWay
from nexuskv.client.hit import Hit, Keys
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.reservation import Reservation
from nexuskv.client.session import Session
from nexuskv.client.shared import SharedWay
from nexuskv.errors import BadRequest, Disconnected
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
        root = contract.content_root if descriptor.content_keyed else contract.chain_root
        self.root = root(descriptor.digest, model, self._way.session.welcome.tenant, salt)

    def keys(self, token_ids: contract.TokenIds) -> list[bytes]:
        """Page keys of a token sequence: 32 bytes for each full page, each chained to the one before.

        Raises LocalError for what are no token ids, BadRequest where pages are found by their content.
        """
        if self.descriptor.content_keyed:
            raise BadRequest(f"{self.descriptor.semantic_type} is found by its content: use content_keys()")
        return contract.page_keys(self.root, token_ids, self.descriptor.page_tokens)

    def content_keys(self, content: contract.Content, pages: int = 1) -> list[bytes]:
        """Keys of the `pages` pages of one input: 32 bytes each, and none depends on another page.

        `content` is all that the state is computed from, or a hash of it. Raises LocalError for what has no bytes,
        BadRequest where pages are found by the tokens before them.
        """
        if not self.descriptor.content_keyed:
            raise BadRequest(f"{self.descriptor.semantic_type} is found by its tokens: use keys()")
        return contract.content_keys(self.root, content, pages)

    def match(self, keys: Keys) -> Hit:
        """Pins the longest restorable boundary of `keys` (its resident prefix, for attention); may be empty.

        Pages that are found by their content are no prefix of anything: give the keys of one input, or span of it, and
        the hit has those up to the first that is absent.

        Takes no message and no system call, once the segments are mapped, and works while the daemon is stopped or
        dead. The hit must be closed: use it in a `with`. Raises PinsFull, Disconnected.
        """
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
        chained = self.descriptor.chained
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
