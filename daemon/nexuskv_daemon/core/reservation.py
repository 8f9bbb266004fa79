"""The right of one session to write some slots.

Owns the order of the pages inside a reservation and which of them are committed. What a commit does to the arena is
the arena's affair.
"""

from nexuskv.errors import NotReserved, ParentMissing
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import COMMITTED, WRITING, Entry


class Reservation:
    """Entries in the order they were granted, parents first; a page's place in that order is its name in a commit."""

    def __init__(self, number: int, arena: Arena) -> None:
        self.number = number
        self.arena = arena
        self.entries: list[Entry] = []
        self.committed = 0
        self.request = 0
        """Id of the request that it answers, by which a session that has not read the answer names it."""

    def commit(self, places: list[int], *, rest: bool) -> int:
        """Publishes the pages at `places`, or all that remain. Returns the pages committed so far.

        Raises NotReserved for a place that is none, or is committed already, and ParentMissing when a page would come
        before its parent; nothing is committed then.
        """
        entries = self._remaining() if rest else self._chosen(places)
        self.arena.publish(entries)
        self.committed += len(entries)
        return self.committed

    def abort(self) -> None:
        """Gives back what is not committed, children first."""
        remaining = self._remaining()
        self.arena.discard(remaining[::-1])
        self.arena.counters.aborted += len(remaining)

    def _remaining(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.state is WRITING]

    def _chosen(self, places: list[int]) -> list[Entry]:
        before: set[Entry] = set()
        for place in places:
            entry = self._at(place)
            if entry.state is not WRITING or entry in before:
                raise NotReserved(
                    f"page {place} of reservation {self.number} is committed already: commit each page once"
                )
            if (
                entry.parent is not None
                and entry.parent.state is not COMMITTED
                and entry.parent not in before
            ):
                raise ParentMissing(
                    f"page {place} of reservation {self.number}: commit the page before it first"
                )
            before.add(entry)
        return [self.entries[place] for place in places]

    def _at(self, place: int) -> Entry:
        if place >= len(self.entries):
            raise NotReserved(
                f"reservation {self.number} has {len(self.entries)} pages, there is no page {place}"
            )
        return self.entries[place]
