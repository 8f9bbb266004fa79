"""The cache of one descriptor and model: keys, hits, reservations.

Owns the key chain's root and the splitting of long calls into messages. A hit or reservation belongs to the session
that it was made in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from nexuskv import contract
from nexuskv.client.asked import AskedWay
from nexuskv.client.branch import Branch, attach_branch, open_branch
from nexuskv.client.hit import Hit, Keys
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.lineage import BranchInfo, Origin, listed
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
        self.root = contract.chain_root(descriptor.digest, model, self._way.session.welcome.tenant, salt)
        self._origin = Origin(keeper, descriptor, self.root, self.match)

    def keys(self, token_ids: contract.TokenIds) -> list[bytes]:
        """Page keys of a token sequence: 32 bytes for each full page, each chained to the one before."""
        return contract.page_keys(self.root, token_ids, self.descriptor.page_tokens)

    def match(self, keys: Keys) -> Hit:
        """Pins the longest restorable boundary of `keys` (its resident prefix, for attention); may be empty.

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

    def branch(self, keys: Keys) -> Branch:
        """A context to fork: that of `keys`, all of them resident, or an empty one. It holds its pages until dropped.

        Takes them from a hit that is open, so that none is evicted before. Raises ParentMissing.
        """
        return open_branch(self._origin, list(keys))

    def attach_branch(self, branch_id: int) -> Branch:
        """A published branch of this cache, by the id that whoever made it gave. Raises UnknownBranch, BadRequest."""
        return attach_branch(self._origin, branch_id)

    def branches(self) -> list[BranchInfo]:
        """The published branches of this cache, by id."""
        return self._keeper.use(lambda session: listed(session, self._origin))

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
