"""Hits of a group: the longest boundary that every member can restore, with all its pages pinned.

Owns the choice of pages across members, from shared memory or by asking the daemon; both answer the same. When a page
goes between the look and the pin, its boundary was not there, and the next one is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from nexuskv.client.asked import AskedPins, AskedWay
from nexuskv.client.hit import Hit, Keys
from nexuskv.client.shared import SharedWay
from nexuskv.contract.groups import Member, longest_boundary
from nexuskv.native import PRESENT, Pins

GroupKeys = Sequence[Keys]
"""Page keys of each member, in the group's order."""
_AS_BOOL = bytes(state == PRESENT for state in range(256))


class GroupHit:
    """A restorable boundary: a hit a member, in the group's order, with the pages that the boundary needs of it.

    `boundary` counts boundaries from the start of the sequence, `tokens` tokens: the engine goes on computing there.
    Close it as soon as the pages are read.
    """

    __slots__ = ("_hits", "boundary", "tokens")

    def __init__(self, boundary: int, tokens: int, hits: Sequence[Hit]) -> None:
        self.boundary = boundary
        self.tokens = tokens
        self._hits = hits

    def __len__(self) -> int:
        """How many members the group has, also when the hit is empty."""
        return len(self._hits)

    def __getitem__(self, member: int) -> Hit:
        return self._hits[member]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._hits)

    def close(self) -> None:
        """Ends the pins of all members. Idempotent; also right when the daemon is gone."""
        for hit in self._hits:
            hit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SharedGroupWay:
    """A group's pages through the shared index: no message and no system call, once the segments are mapped.

    Members of which a boundary needs every page before it are chained: their runs are pinned first. Where these end,
    the others most likely have what is needed, because boundaries are committed as a whole. If not, they are looked
    through.
    """

    def __init__(self, ways: Sequence[SharedWay], members: Sequence[Member]) -> None:
        self.session = ways[0].session
        self._ways = ways
        self._members = members
        every = list(enumerate(zip(ways, members, strict=True)))
        self._chained = [(at, way, own.pages) for at, (way, own) in every if own.chained]
        self._loose = [(at, way, own) for at, (way, own) in every if not own.chained]
        self._rules = [own for _, _, own in self._loose]

    def boundary(self, keys: GroupKeys, limit: int) -> int:
        """The boundary that `match` would find. Raises Moved."""
        present = [way.present(each) for way, each in zip(self._ways, keys, strict=True)]
        return longest_boundary(self._members, present, limit)

    def match(self, keys: GroupKeys, limit: int) -> tuple[int, list[Hit]]:
        """Pins the longest boundary up to `limit`. Raises Moved, PinsFull."""
        held: dict[int, Pins] = {}
        try:
            boundary, starts = self._pin(keys, limit, held)
        except BaseException:
            for pins in held.values():
                pins.release()
            raise
        return boundary, [
            Hit(way, keys[at], starts.get(at, 0), held[at]) for at, way in enumerate(self._ways)
        ]

    def _pin(self, keys: GroupKeys, limit: int, held: dict[int, Pins]) -> tuple[int, dict[int, int]]:
        """The boundary at which `held` has all that is needed, and where the pages of loose members start."""
        boundary = limit
        for at, way, pages in self._chained:
            held[at] = pins = way.pin(_leading(keys[at], boundary * pages))
            if len(pins) < boundary * pages:
                boundary = len(pins) // pages
        starts: dict[int, int] = {}
        if self._loose:
            boundary, starts = self._pin_loose(keys, boundary, held)
        if boundary < limit:
            for at, _, pages in self._chained:
                held[at].truncate(boundary * pages)
        return boundary, starts

    def _look(self, keys: GroupKeys, limit: int) -> list[bytes]:
        """A byte a page of the loose members, 1 where it is there."""
        return [
            way.glance(_leading(keys[at], limit * own.pages)).translate(_AS_BOOL)
            for at, way, own in self._loose
        ]

    def _pin_loose(self, keys: GroupKeys, boundary: int, held: dict[int, Pins]) -> tuple[int, dict[int, int]]:
        """Pins what the loose members need of a boundary, or else of the longest before it at which that is there."""
        gone: list[tuple[int, int]] = []
        while True:
            needed = {at: own.needed(boundary) for at, _, own in self._loose}
            missing = self._pin_needed(keys, needed, held)
            if missing is None:
                return boundary, {at: pages.start for at, pages in needed.items()}
            gone.append(missing)
            looked = [bytearray(pages) for pages in self._look(keys, boundary)]
            for place, page in gone:  # or such that cannot be read here: as good as gone
                if page < len(looked[place]):
                    looked[place][page] = 0
            boundary = longest_boundary(self._rules, [bytes(pages) for pages in looked], boundary)

    def _pin_needed(
        self, keys: GroupKeys, needed: dict[int, range], held: dict[int, Pins]
    ) -> tuple[int, int] | None:
        """The first page that is not there after all, and its member's place among the loose ones."""
        for place, (at, way, _) in enumerate(self._loose):
            pages = needed[at]
            held[at] = way.pin(keys[at][pages.start : pages.stop])
            if len(held[at]) < len(pages):
                missing = pages.start + len(held[at])
                for other, _, _ in self._loose[: place + 1]:
                    held.pop(other).release()
                return place, missing
        return None


def _leading(keys: Keys, count: int) -> Keys:
    """The first `count` keys, without a copy when these are all."""
    return keys if len(keys) == count else keys[:count]


class AskedGroupWay:
    """A group's pages by asking the daemon: look, then pin just those; what went meanwhile is looked for anew."""

    def __init__(self, ways: Sequence[AskedWay], members: Sequence[Member]) -> None:
        self.session = ways[0].session
        self._ways = ways
        self._members = members

    def boundary(self, keys: GroupKeys, limit: int) -> int:
        """The boundary that `match` would find. Raises Disconnected, DeadlineExceeded."""
        present = [way.present(each) for way, each in zip(self._ways, keys, strict=True)]
        return longest_boundary(self._members, present, limit)

    def match(self, keys: GroupKeys, limit: int) -> tuple[int, list[Hit]]:
        """Pins the longest boundary up to `limit`. Raises Disconnected, DeadlineExceeded."""
        while True:
            boundary = self.boundary(keys, limit)
            chosen = [member.needed(boundary) for member in self._members]
            held = self._pin_all(keys, chosen)
            if held is not None:
                each = zip(self._ways, keys, chosen, held, strict=True)
                return boundary, [Hit(way, own, needed.start, pins) for way, own, needed, pins in each]

    def _pin_all(self, keys: GroupKeys, chosen: Sequence[range]) -> list[AskedPins] | None:
        held: list[AskedPins] = []
        for way, own, needed in zip(self._ways, keys, chosen, strict=True):
            pins = way.pin_all(own, needed)
            if pins is None:
                for each in held:
                    each.release()
                return None
            held.append(pins)
        return held
