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
from nexuskv.contract import AllPages
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

    Members of which a boundary needs every page before it are `chained`: their runs are pinned without a look before.
    """

    def __init__(self, ways: Sequence[SharedWay], members: Sequence[Member]) -> None:
        self.session = ways[0].session
        self._ways = ways
        self._members = members
        self._chained = [at for at, member in enumerate(members) if type(member.reuse) is AllPages]
        self._loose = [at for at in range(len(members)) if at not in self._chained]

    def boundary(self, keys: GroupKeys, limit: int) -> int:
        """The boundary that `match` would find. Raises Moved."""
        present = [way.present(each) for way, each in zip(self._ways, keys, strict=True)]
        return longest_boundary(self._members, present, limit)

    def match(self, keys: GroupKeys, limit: int) -> tuple[int, list[Hit]]:
        """Pins the longest boundary up to `limit`. Raises Moved, PinsFull."""
        held: dict[int, Pins] = {}
        try:
            boundary = self._pin(keys, limit, held)
        except BaseException:
            for pins in held.values():
                pins.release()
            raise
        return boundary, [
            Hit(way, keys[at], member.needed(boundary).start, held[at])
            for at, (way, member) in enumerate(zip(self._ways, self._members, strict=True))
        ]

    def _pin(self, keys: GroupKeys, limit: int, held: dict[int, Pins]) -> int:
        present = self._look(keys, limit)
        boundary = self._longest(present, limit)
        for at in self._chained:
            pages = self._members[at].pages
            held[at] = self._ways[at].pin(keys[at][: boundary * pages])
            boundary = min(boundary, len(held[at]) // pages)
        boundary = self._pin_loose(keys, present, boundary, held)
        for at in self._chained:
            held[at].truncate(boundary * self._members[at].pages)
        return boundary

    def _look(self, keys: GroupKeys, limit: int) -> list[bytes]:
        return [
            self._ways[at].glance(keys[at][: limit * self._members[at].pages]).translate(_AS_BOOL)
            for at in self._loose
        ]

    def _longest(self, present: Sequence[bytes], limit: int) -> int:
        return longest_boundary([self._members[at] for at in self._loose], present, limit)

    def _pin_loose(
        self, keys: GroupKeys, present: Sequence[bytes], boundary: int, held: dict[int, Pins]
    ) -> int:
        """Pins what the members that are not chained need, and returns the boundary at which all is there."""
        gone: list[tuple[int, int]] = []
        while True:
            boundary = self._longest(present, boundary)
            short = self._pin_needed(keys, boundary, held)
            if short is None:
                return boundary
            gone.append(short)
            looked = [bytearray(pages) for pages in self._look(keys, boundary)]
            for member, page in gone:  # or such that cannot be read here: as good as gone
                if page < len(looked[member]):
                    looked[member][page] = 0
            present = [bytes(pages) for pages in looked]

    def _pin_needed(self, keys: GroupKeys, boundary: int, held: dict[int, Pins]) -> tuple[int, int] | None:
        """The first page that is not there after all, by its member's place among the loose ones."""
        for place, at in enumerate(self._loose):
            needed = self._members[at].needed(boundary)
            held[at] = self._ways[at].pin(keys[at][needed.start : needed.stop])
            if len(held[at]) < len(needed):
                missing = needed.start + len(held[at])
                for other in self._loose[: place + 1]:
                    held.pop(other).release()
                return place, missing
        return None


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
