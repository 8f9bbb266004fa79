"""A reservation of a group's boundaries: pages of several descriptors, to write and then to commit or give back.

Owns the right to write them. A boundary is committed as a whole: nobody finds one with a page missing, whatever becomes
of the process that writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nexuskv.client.grant import Grant, WritablePage
from nexuskv.client.session import Session
from nexuskv.contract.groups import Member
from nexuskv.ipc.mapping import MappedSegment
from nexuskv.protocol import messages as m
from nexuskv.protocol.messages import SLOT_BITS, SLOT_MASK


class _Granted:
    """What was granted of a boundary: of each member the key, position, segment and slot of its pages."""

    __slots__ = ("number", "rows")

    def __init__(self, number: int, members: int) -> None:
        self.number = number
        self.rows: list[list[tuple[bytes, int, MappedSegment, int]]] = [[] for _ in range(members)]


class ReservedBoundary:
    """One boundary to write: `boundary[i]` are the pages that it lacks of member i, in order, perhaps none.

    `number` counts boundaries from the start of the sequence, from 1 on: it restores `number * group.tokens` tokens.
    """

    __slots__ = ("_grant", "_pages", "number", "place")

    def __init__(self, grant: GroupReservation, place: int, granted: _Granted) -> None:
        self._grant = grant
        self.place = place
        self._pages = [[WritablePage(grant, place, *row) for row in rows] for rows in granted.rows]
        self.number = granted.number

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
        # Boundaries are made when they are asked for: kept here they would keep their grant, and nobody would end it.
        self._boundaries: list[_Granted] = []

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
        fresh = {number: _Granted(first + number + 1, len(arenas)) for number in granted.boundaries}
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
        fresh: dict[int, _Granted],
        each: int,
    ) -> None:
        """Hands a member's pages to their boundaries, `each` keys of the request a boundary."""
        segments = self._session.writable[part.arena]
        for position, handle in zip(granted.positions[member], granted.handles[member], strict=True):
            fresh[position // each].rows[member].append(
                (
                    part.keys[position],
                    pages[position],
                    segments[handle >> SLOT_BITS],
                    handle & SLOT_MASK,
                )
            )

    def __iter__(self) -> Iterator[ReservedBoundary]:
        return (ReservedBoundary(self, place, granted) for place, granted in enumerate(self._boundaries))

    def __getitem__(self, index: int) -> ReservedBoundary:
        place = range(len(self._boundaries))[index]
        return ReservedBoundary(self, place, self._boundaries[place])
