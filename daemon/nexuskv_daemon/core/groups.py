"""Boundaries of groups: pages of several arenas that are reserved, and committed, as a whole.

Owns which pages of a request make which boundary, and the reservation that writes them. Knows no reuse rules: which
pages a boundary needs is the client's to say. That they are evicted as a whole is the tie's affair (`ties.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nexuskv.errors import NexusError, NotReserved, ParentMissing
from nexuskv_daemon.core.arena import Arena, by_arena
from nexuskv_daemon.core.entries import COMMITTED, Entry
from nexuskv_daemon.core.store import Plan, Store
from nexuskv_daemon.core.ties import Numbers, Tie, bind


@dataclass(frozen=True, slots=True)
class Part:
    """One member's pages in a request: `pages` keys for each boundary, in order. `parent` comes before the first."""

    arena: Arena
    keys: list[bytes]
    parent: bytes
    pages: int


@dataclass(slots=True, eq=False)
class Boundary:
    """One boundary to be written: its absent pages, and those that are there and stay while it is written."""

    fresh: list[Entry] = field(default_factory=list)
    present: list[Entry] = field(default_factory=list)
    committed: bool = False


@dataclass(slots=True)
class Granted:
    """Of each boundary to be written its place in the request; of each member the places of its keys, and slots.

    `busy` boundaries at the end have pages that others are writing, or hang from such.
    """

    reservation: GroupReservation
    boundaries: list[int]
    positions: list[list[int]]
    handles: list[list[int]]
    busy: int


class GroupReservation:
    """Boundaries in order; a boundary's place in that order is its name in a commit."""

    def __init__(self, number: int, numbers: Numbers) -> None:
        self.number = number
        self.boundaries: list[Boundary] = []
        self.committed = 0
        self._numbers = numbers

    @property
    def writing(self) -> set[Entry]:
        """Entries of boundaries that are not committed."""
        return {entry for each in self._remaining() for entry in each.fresh}

    def commit(self, places: list[int], *, rest: bool) -> int:
        """Publishes the boundaries at `places`, or all that remain. Returns how many are committed so far.

        Raises NotReserved for a place that is none, or is committed already, and ParentMissing when a boundary would
        come before the one that it hangs from; nothing is committed then.
        """
        chosen = self._remaining() if rest else self._chosen(places)
        for boundary in chosen:
            bind(boundary.fresh, boundary.present, self._numbers)
        for arena, entries in by_arena(entry for boundary in chosen for entry in boundary.fresh).items():
            arena.publish(entries)
        for boundary in chosen:
            _complete(boundary)
        self.committed += len(chosen)
        return self.committed

    def abort(self) -> None:
        """Gives back what is not committed, children first, and lets go of what is."""
        remaining = self._remaining()
        for boundary in remaining:
            _let_go(boundary)
        for arena, entries in by_arena(entry for boundary in remaining for entry in boundary.fresh).items():
            arena.discard(entries[::-1])
            arena.counters.aborted += len(entries)

    def _remaining(self) -> list[Boundary]:
        return [boundary for boundary in self.boundaries if not boundary.committed]

    def _chosen(self, places: list[int]) -> list[Boundary]:
        before: set[Entry] = set()
        for place in places:
            boundary = self._at(place)
            if boundary.committed or not before.isdisjoint(boundary.fresh):
                raise NotReserved(
                    f"boundary {place} of reservation {self.number} is committed already: commit each once"
                )
            before.update(boundary.fresh)
            parents = (entry.parent for entry in boundary.fresh if entry.parent is not None)
            if not all(parent.state is COMMITTED or parent in before for parent in parents):
                raise ParentMissing(
                    f"boundary {place} of reservation {self.number}: commit the one before it first"
                )
        return [self.boundaries[place] for place in places]

    def _at(self, place: int) -> Boundary:
        if place >= len(self.boundaries):
            raise NotReserved(
                f"reservation {self.number} has {len(self.boundaries)} boundaries, there is none at {place}"
            )
        return self.boundaries[place]


def reserve(
    store: Store,
    parts: Sequence[Part],
    count: int,
    reservation: GroupReservation | None,
    now: float,
    owner: int = 0,
) -> Granted | None:
    """Slots for the absent pages of `count` boundaries, all or none; None while a segment is being made.

    From the first boundary on of which somebody else is writing a page, none is granted: it could not be committed as
    a whole. Raises ArenaFull, ParentMissing, and BadRequest for repeated keys.
    """
    free = _free(parts, count)
    own = reservation.writing if reservation is not None else set[Entry]()
    parts = [Part(part.arena, part.keys[: free * part.pages], part.parent, part.pages) for part in parts]
    plans = [store.plan(part.arena, part.keys, part.parent, own) for part in parts]
    present = [[part.arena.index.get(key) for key in part.keys] for part in parts]
    # Neither what the new pages hang from nor what will be tied to them is evicted to make room for them.
    held = store.hold(entry for found in (*present, *(plan.parents for plan in plans)) for entry in found)
    try:
        granted = _grant(store, parts, plans, now, owner)
        if granted is None:
            return None
        boundaries = _assemble(parts, plans, granted, present, free)
    finally:
        store.let_go(held)
    if reservation is None:
        reservation = GroupReservation(store.reservations.next(), store.ties)
    places = [place for place, boundary in enumerate(boundaries) if boundary.fresh]
    reservation.boundaries += [boundaries[place] for place in places]
    handles = [[entry.handle for entry in entries] for entries in granted]
    return Granted(reservation, places, [plan.positions for plan in plans], handles, count - free)


def _free(parts: Sequence[Part], count: int) -> int:
    """How many leading boundaries have no page that is being written."""
    for place in range(count):
        for part in parts:
            keys = part.keys[place * part.pages : (place + 1) * part.pages]
            if not part.arena.writing.keys().isdisjoint(keys):
                return place
    return count


def _grant(
    store: Store, parts: Sequence[Part], plans: Sequence[Plan], now: float, owner: int
) -> list[list[Entry]] | None:
    """Entries for every member, or for none. Those that one has got keep another from taking their segments."""
    granted: list[list[Entry]] = []
    try:
        for part, plan in zip(parts, plans, strict=True):
            entries = store.grant(part.arena, part.keys, plan, now, owner)
            if entries is None:
                _undo(granted)
                return None
            granted.append(entries)
    except NexusError:
        _undo(granted)
        raise
    return granted


def _undo(granted: list[list[Entry]]) -> None:
    for entries in granted:
        if entries:
            entries[0].arena.discard(entries[::-1])


def _assemble(
    parts: Sequence[Part],
    plans: Sequence[Plan],
    granted: Sequence[list[Entry]],
    present: Sequence[list[Entry | None]],
    count: int,
) -> list[Boundary]:
    """All boundaries of the request. What is there of those that have absent pages is pinned until they are written."""
    boundaries = [Boundary() for _ in range(count)]
    for part, plan, entries, found in zip(parts, plans, granted, present, strict=True):
        for position, entry in zip(plan.positions, entries, strict=True):
            boundaries[position // part.pages].fresh.append(entry)
        for position, there in enumerate(found):
            if there is not None:
                boundaries[position // part.pages].present.append(there)
    for boundary in boundaries:
        if boundary.fresh:
            Tie(0, (*boundary.fresh, *boundary.present), bearers=boundary.fresh)
            for entry in boundary.present:
                entry.arena.pin((entry,), entry.tick)
    return boundaries


def _complete(boundary: Boundary) -> None:
    """Its pages are published."""
    boundary.committed = True
    tie = boundary.fresh[0].tie
    assert tie is not None
    if boundary.present:
        tie.record()
    _let_go(boundary)
    tie.faces[0].arena.enqueue(tie.faces[0])


def _let_go(boundary: Boundary) -> None:
    for entry in boundary.present:
        entry.arena.unpin((entry,))
