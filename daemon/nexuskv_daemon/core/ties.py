"""Pages that are evicted together: what makes one boundary of a group, in the store and on record.

Owns the tie and its word in the shared index, by which the next daemon knows whole boundaries from half ones. A tie is
made when a boundary is committed. Pages that were there before join it, and where they had ties of their own, all
become one: so whichever page goes, no boundary that needs it is left with the others.

Every change on record is one store to one word, in an order that leaves no committed boundary broken wherever the
daemon dies. `nexuskv.h` draws the word: a number, and how many entries bear it. What is judged is `whole` alone.

    commit   1. all its new pages get (number, count) while they are WRITING      else dropped: nobody writes them more
             2. they become LIVE, one by one                                      else dropped: fewer than `count`
             3. pages that joined it, (number, old count) so far, get the new one they are whole either way
    join     pages of several ties, and of none, become one tie before that: each word goes through count 0, and a tie
             in which there is a 0 is being changed, and not judged
    evict    all become RETIRING, one by one                                      the rest goes: fewer than `count`
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from nexuskv_daemon.core.entries import COMMITTED, Entry

TIED = 1 << 63
COUNT_BITS, NUMBER_BITS = 23, 40
MAX_TIED = (1 << COUNT_BITS) - 1
"""Entries of one tie."""
_NUMBER = (1 << NUMBER_BITS) - 1


def word(number: int, count: int) -> int:
    """What stands on record of an entry of a tie."""
    return TIED | min(count, MAX_TIED) << NUMBER_BITS | number


def number_of(recorded: int) -> int:
    """The tie of a recorded word."""
    return recorded & _NUMBER


def count_of(recorded: int) -> int:
    """How many entries the tie of a recorded word has; 0 while that is being changed."""
    return (recorded & ~TIED) >> NUMBER_BITS


class Tie:
    """Entries that go together. `faces`, one in each arena, stand for them in the eviction queues."""

    __slots__ = ("_inside", "entries", "faces", "number")

    def __init__(self, number: int, entries: Iterable[Entry], bearers: Iterable[Entry] | None = None) -> None:
        """Ties `entries`, each named once. With `bearers`, these alone know of it: pages being written, and only they.

        That holds what they will be tied to, without tying it to anything before it is committed.
        """
        self.number = number
        self.entries = tuple(entries)
        ends = {entry.arena: entry for entry in self.entries}
        self.faces = tuple(ends.values())
        for entry in self.entries if bearers is None else bearers:
            entry.tie = self
        self._inside = sum(entry.parent is not None and entry.parent.tie is self for entry in self.entries)
        for arena in ends:
            arena.partners.update(ends)

    @property
    def evictable(self) -> bool:
        """Nobody holds one of them, and nothing but they themselves hangs from them."""
        children = 0
        for entry in reversed(self.entries):  # hits let go of their first page first
            if entry.state is not COMMITTED or entry.pins:
                return False
            children += entry.children
        return children == self._inside

    def record(self) -> None:
        """Puts it on record as it is now."""
        self._write(word(self.number, len(self.entries)))

    def open(self) -> None:
        """Puts on record that it is being changed."""
        self._write(word(self.number, 0))

    def _write(self, recorded: int) -> None:
        self.entries[0].arena.publication.tie(list(self.entries), recorded)


class Numbers:
    """Numbers of ties, each given once."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        self.last += 1
        return self.last


def bind(fresh: Sequence[Entry], present: Sequence[Entry], numbers: Numbers) -> Tie:
    """Ties pages about to be published to each other and to those that were there. The caller records it after that."""
    before = _joined(present, numbers) if present else None
    number = before.number if before is not None else numbers.next()
    tie = Tie(number, (*(before.entries if before is not None else ()), *fresh))
    tie.entries[0].arena.publication.tie(list(fresh), word(number, len(tie.entries)))
    return tie


def _joined(present: Sequence[Entry], numbers: Numbers) -> Tie:
    """One tie of all that goes when one of `present` goes."""
    ties = list(dict.fromkeys(entry.tie for entry in present if entry.tie is not None))
    loose = [entry for entry in present if entry.tie is None]
    if len(ties) == 1 and not loose:
        return ties[0]
    for tie in ties:
        tie.open()
    joined = Tie(numbers.next(), [*(entry for tie in ties for entry in tie.entries), *loose])
    joined.open()
    joined.record()
    return joined


Recorded = dict[int, list[Entry]]
"""Committed entries by the word that stands on record of them."""


def whole(recorded: Recorded) -> tuple[list[Entry], list[Entry]]:
    """Of the entries of one tie: those that are all there, and those that must go.

    A commit that was cut short left words with a count that is not reached; what it wanted to join is whole with the
    count before.
    """
    counts = {count_of(each): entries for each, entries in recorded.items() if entries}
    everyone = [entry for entries in counts.values() for entry in entries]
    if 0 in counts or set(counts) == {len(everyone)}:
        return everyone, []
    there, reached = 0, 0
    for count in sorted(counts):
        there += len(counts[count])
        if there >= count:
            reached = count
    kept = [entry for count, entries in counts.items() if count <= reached for entry in entries]
    return kept, [entry for count, entries in counts.items() if count > reached for entry in entries]


def by_number(recorded: Recorded) -> dict[int, Recorded]:
    """What is recorded, tie by tie."""
    found: dict[int, Recorded] = defaultdict(dict)
    for each, entries in recorded.items():
        found[number_of(each)][each] = entries
    return found
