"""Where entries are made known to readers that never ask the daemon.

Owns the interface between the store and one tenant's shared index. It is a port, not an effect: whether a slot is free
again depends on what readers pinned meanwhile, and the store must know before it hands the slot out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from nexuskv.contract import Descriptor
    from nexuskv_daemon.core.arena import Arena
    from nexuskv_daemon.core.entries import Entry


class Usage(NamedTuple):
    """Pages hit and missed so far, hits refused for want of a pin, pages pinned now, entries, and how many may be."""

    hits: int
    misses: int
    pins_full: int
    pinned: int
    entries: int
    index_entries: int


class Publication(Protocol):
    """One tenant's readers. Every call takes a batch, in the order parents first."""

    def reserve(self, arena: Arena, entries: list[Entry], owner: int) -> bool:
        """These are being written by session `owner`. False, and nothing noted, when there is no place for them."""
        ...

    def commit(self, entries: list[Entry]) -> None:
        """Readers find these from now on."""
        ...

    def abort(self, entries: list[Entry]) -> None:
        """These were reserved, and will not come."""
        ...

    def tie(self, entries: list[Entry], word: int) -> None:
        """Puts on record what ties these, being written or committed, to each other (`ties.py`)."""
        ...

    def retire(self, entries: list[Entry]) -> None:
        """Nobody finds these any more; who pinned them goes on reading."""
        ...

    def revive(self, entries: list[Entry]) -> None:
        """Readers find retired entries again."""
        ...

    def pinned(self) -> Container[int]:
        """Buckets that readers pin just now: what to evict last. A reader may come meanwhile."""
        ...

    def free(self, entries: list[Entry]) -> list[Entry]:
        """Those of retired entries that no reader pins: their slots may be written again."""
        ...

    def announce(self, arena: Arena, descriptor: Descriptor) -> None:
        """A descriptor that an arena of this tenant serves: a daemon that takes over must know it. Raises ArenaFull."""
        ...

    def admits(self, segment: int) -> bool:
        """Whether a segment with that number can be added."""
        ...

    def add_segment(self, arena: Arena, segment: int, slots: int, nbytes: int) -> None:
        """A segment of `arena` that entries may lie in from now on."""
        ...

    def remove_segment(self, segment: int) -> None:
        """No entry lies in this segment any more."""
        ...

    def attach(self, session: int) -> None:
        """A session begins to read without asking."""
        ...

    def detach(self, session: int) -> None:
        """A session's connection ended; its pins go when its process lets go of them."""
        ...

    def usage(self) -> Usage:
        """What readers did and hold, as they say."""
        ...

    def used(self) -> Iterable[tuple[int, bytes]]:
        """Segment and key of what readers used since the last call."""
        ...
