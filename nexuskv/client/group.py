"""A group: several descriptors of one model whose pages restore a prefix together.

Owns the members' caches and where boundaries lie. Which pages a boundary needs is the contract's affair
(`contract/groups.py`), that it comes and goes as a whole the daemon's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from operator import floordiv

from nexuskv import contract
from nexuskv.client import fetching
from nexuskv.client.asked import AskedWay
from nexuskv.client.cache import Cache, PageStatus, check_keys, no_key
from nexuskv.client.fetching import Fetched
from nexuskv.client.group_match import AskedGroupWay, GroupHit, GroupKeys, SharedGroupWay
from nexuskv.client.group_reservation import GroupReservation
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.session import Session
from nexuskv.client.shared import SharedWay
from nexuskv.client.ways import search, way_to
from nexuskv.contract import permissions
from nexuskv.contract.groups import boundary_tokens, members
from nexuskv.errors import BadRequest, DeadlineExceeded, Disconnected
from nexuskv.protocol import messages as m


class Group:
    """Boundaries of one group, model and salt. `tokens` lie between two; `caches` are those of its members.

    The members' pages are those that their caches have: an engine that needs one member alone opens its cache.
    """

    def __init__(
        self, keeper: SessionKeeper, descriptors: Sequence[contract.Descriptor], model: str, salt: str
    ) -> None:
        for descriptor in descriptors:
            permissions.require_prefix_reuse(descriptor)
        self.tokens = boundary_tokens(descriptors)
        self._members = members(descriptors)
        self._pages = [member.pages for member in self._members]
        self._own = sum(len(member.own(1)) for member in self._members)
        self._refuse_unwieldy(descriptors)
        self._keeper = keeper
        self.caches = tuple(Cache(keeper, descriptor, model, salt) for descriptor in descriptors)
        self._way = keeper.use(self._ways)

    def keys(self, token_ids: contract.TokenIds) -> list[list[bytes]]:
        """Of each member the page keys of a token sequence, as far as whole boundaries go."""
        found = [cache.keys(token_ids) for cache in self.caches]
        boundaries = self._boundaries(found)
        return [own[: boundaries * each.pages] for own, each in zip(found, self._members, strict=True)]

    def match(self, keys: GroupKeys, *, fetch: bool = False, within: float | None = None) -> GroupHit:
        """Pins the longest boundary at which every member satisfies its reuse rule; may be empty.

        Takes no message and no system call, once the segments are mapped, and works while the daemon is stopped or
        dead: what is not mapped is a miss then. With `fetch`, the largest boundary that another host has is pulled
        first, as by `fetch`. The hit must be closed: use it in a `with`. Raises PinsFull, and Disconnected where the
        client shares no index, or lost it to a daemon that started afresh and is gone too.
        """
        if fetch:
            return self._match_fetching(keys, within)
        limit = self._boundaries(keys)
        way = self._way
        if not way.session.alive:
            way = self._choose()
        try:
            found = search(way, self._choose, lambda way: way.match(keys, limit))
        except ValueError as error:
            raise no_key(error) from error
        return GroupHit(found[0], found[0] * self.tokens, found[1])

    def fetch(self, keys: GroupKeys, *, within: float | None = None) -> Fetched:
        """Pulls what the largest boundary that another host has needs; waits `within` seconds at most (5).

        It is committed as a whole: a boundary of which a page does not come, or is not right, is not there. Otherwise
        as `Cache.fetch`. Raises Closed, Disconnected, and BadRequest where a boundary has more pages than a message.
        """
        return fetching.fetch(self._keeper, self._plan(keys), within)

    def prefetch(self, keys: GroupKeys) -> None:
        """As `fetch`, without waiting for it: a later match finds what came. Raises as `fetch` does."""
        fetching.prefetch(self._keeper, self._plan(keys))

    def _plan(self, keys: GroupKeys) -> fetching.GroupPlan:
        if sum(self._pages) > m.MAX_KEYS:
            raise BadRequest(
                f"a boundary lies every {self.tokens} tokens, {sum(self._pages)} pages after the one before; other "
                f"hosts are asked for {m.MAX_KEYS} at the most: choose page_tokens whose least common multiple is "
                "smaller"
            )
        descriptors = [cache.descriptor for cache in self.caches]
        boundaries = self._boundaries(keys)
        for own in keys:
            check_keys(own)  # of a prefetch nobody would hear
        self._keeper.use(
            lambda session: [session.arena(each) for each in descriptors]
        )  # after a restart, anew
        return fetching.GroupPlan(descriptors, keys, self._pages, boundaries)

    def _match_fetching(self, keys: GroupKeys, within: float | None) -> GroupHit:
        hit = self.match(keys)
        if hit.boundary == self._boundaries(keys):
            return hit
        with hit:  # pinned meanwhile, so that what comes does not push out what it hangs from
            with contextlib.suppress(Disconnected, DeadlineExceeded):
                self.fetch(keys, within=within)
            return self.match(keys)

    def lookup(self, keys: GroupKeys) -> int:
        """The boundary that `match` would find now, counted from the start. Pins and refreshes nothing."""
        limit = self._boundaries(keys)
        try:
            return search(self._choose(), self._choose, lambda way: way.boundary(keys, limit))
        except ValueError as error:
            raise no_key(error) from error

    def status(self, keys: GroupKeys) -> list[PageStatus]:
        """Of each boundary whether the pages that belong to it are present, and if not, of which member and why.

        Pins and refreshes nothing. Raises Disconnected.
        """
        boundaries = self._boundaries(keys)
        pages = [cache.status(own) for cache, own in zip(self.caches, keys, strict=True)]
        return [self._status(pages, number) for number in range(1, boundaries + 1)]

    def reserve(self, keys: GroupKeys) -> GroupReservation:
        """Slots for the absent pages of all boundaries, all of them or none; use it in a `with`.

        From the first boundary on of which somebody else is writing a page, nothing is granted. Raises ArenaFull.
        """
        boundaries = self._boundaries(keys)
        return self._keeper.use(lambda session: self._reserve(session, keys, boundaries))

    def _reserve(self, session: Session, keys: GroupKeys, boundaries: int) -> GroupReservation:
        reservation = GroupReservation(session, self._members)
        arenas = [session.arena(cache.descriptor) for cache in self.caches]
        step = m.MAX_KEYS // self._own
        try:
            for first in range(0, boundaries, step):
                if not reservation.extend(arenas, keys, first, min(first + step, boundaries)):
                    break
        except BaseException:
            reservation.abort()
            raise
        return reservation

    def _status(self, pages: Sequence[Sequence[PageStatus]], number: int) -> PageStatus:
        worst = PageStatus("present", "")
        for cache, member, own in zip(self.caches, self._members, pages, strict=True):
            for page in member.own(number):
                if own[page].state == "absent":
                    return PageStatus("absent", f"{cache.descriptor.descriptor_id}: {own[page].reason}")
                if own[page].state == "being_written":
                    worst = PageStatus(
                        "being_written", f"{cache.descriptor.descriptor_id}: {own[page].reason}"
                    )
        return worst

    def _boundaries(self, keys: GroupKeys) -> int:
        """How many whole boundaries the keys of all members reach."""
        if len(keys) != len(self._members):
            raise BadRequest(
                f"keys of {len(keys)} members for a group of {len(self._members)}: use group.keys()"
            )
        boundaries: int = min(map(floordiv, map(len, keys), self._pages))
        return boundaries

    def _refuse_unwieldy(self, descriptors: Sequence[contract.Descriptor]) -> None:
        if len(descriptors) > m.MAX_MEMBERS:
            raise BadRequest(f"a group of {len(descriptors)} descriptors: {m.MAX_MEMBERS} are the most")
        if self._own > m.MAX_KEYS:
            raise BadRequest(
                f"a boundary lies every {self.tokens} tokens and has {self._own} pages, {m.MAX_KEYS} are the most: "
                "choose page_tokens whose least common multiple is smaller"
            )

    def _ways(self, session: Session) -> SharedGroupWay | AskedGroupWay:
        ways = [way_to(session, cache.descriptor) for cache in self.caches]
        shared = [way for way in ways if isinstance(way, SharedWay)]
        if shared:
            return SharedGroupWay(shared, self._members)
        return AskedGroupWay([way for way in ways if isinstance(way, AskedWay)], self._members)

    def _choose(self) -> SharedGroupWay | AskedGroupWay:
        """The way through the session to read with."""
        session = self._keeper.reading
        if session is not self._way.session:
            self._way = self._ways(session)
        return self._way
