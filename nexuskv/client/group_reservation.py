"""A reservation of a group's boundaries: pages of several descriptors, to write and then to commit or give back.

Owns the right to write them. A boundary is committed as a whole: nobody finds one with a page missing, whatever becomes
of the process that writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nexuskv.client.reservation import Grant, WritablePage
from nexuskv.client.session import Session
from nexuskv.contract.groups import Member
from nexuskv.protocol import messages as m
from nexuskv.protocol.messages import SLOT_BITS, SLOT_MASK


class ReservedBoundary:
    """One boundary to write: `boundary[i]` are the pages that it lacks of member i, in order, perhaps none.

    `number` counts boundaries from the start of the sequence, from 1 on: it restores `number * group.tokens` tokens.
    """

    __slots__ = ("_grant", "_pages", "number", "place")

    def __init__(self, grant: GroupReservation, place: int, number: int, members: int) -> None:
        self._grant = grant
        self.place = place
        self._pages: list[list[WritablePage]] = [[] for _ in range(members)]
        self.number = number

    def __len__(self) -> int:
        """How many members the group has."""
        return len(self._pages)

    def __getitem__(self, member: int) -> list[WritablePage]:
        return self._pages[member]

    def __iter__(self) -> Iterator[list[WritablePage]]:
        return iter(self._pages)

    def commit(self) -> None:
        """Publishes this boundary now, without waiting. A boundary comes after the one before it. Raises Closed."""
        self._grant.commit_one(self.place)


class GroupReservation(Grant):
    """A sequence of boundaries to write. Leaving its `with` commits them, an exception aborts.

    Boundaries of which every page is there already are not among them. `busy` counts those that others are writing, or
    that come after such.
    """

    def __init__(self, session: Session, members: Sequence[Member]) -> None:
        super().__init__(session)
        self._members = members
        self._boundaries: list[ReservedBoundary] = []

    def extend(self, arenas: Sequence[int], keys: Sequence[Sequence[bytes]], first: int, stop: int) -> bool:
        """Asks for the absent pages of boundaries `first + 1` to `stop`. False if some are busy."""
        asked = [
            [page for number in range(first + 1, stop + 1) for page in member.own(number)]
            for member in self._members
        ]
        parts = [
            m.Part(arena, [own[page] for page in pages], own[pages[0] - 1] if pages[0] else b"")
            for arena, own, pages in zip(arenas, keys, asked, strict=True)
        ]
        request = m.ReserveGroup(self._session.number(), stop - first, parts, self._number)
        granted = self._session.call(request, m.ReservedGroup)
        self._number = granted.reservation
        self._busy += granted.busy
        fresh = {
            number: ReservedBoundary(self, len(self._boundaries) + place, first + number + 1, len(arenas))
            for place, number in enumerate(granted.boundaries)
        }
        self._boundaries += fresh.values()
        self._places = len(self._boundaries)
        for at, part in enumerate(parts):
            self._fill(at, part, asked[at], granted, fresh, len(part.keys) // (stop - first))
        return not granted.busy

    def _fill(
        self,
        member: int,
        part: m.Part,
        pages: Sequence[int],
        granted: m.ReservedGroup,
        fresh: dict[int, ReservedBoundary],
        each: int,
    ) -> None:
        """Hands a member's pages to their boundaries, `each` keys of the request a boundary."""
        segments = self._session.writable[part.arena]
        for position, handle in zip(granted.positions[member], granted.handles[member], strict=True):
            boundary = fresh[position // each]
            boundary[member].append(
                WritablePage(
                    self,
                    boundary.place,
                    part.keys[position],
                    pages[position],
                    segments[handle >> SLOT_BITS],
                    handle & SLOT_MASK,
                )
            )

    def __iter__(self) -> Iterator[ReservedBoundary]:
        return iter(self._boundaries)

    def __getitem__(self, index: int) -> ReservedBoundary:
        return self._boundaries[index]
