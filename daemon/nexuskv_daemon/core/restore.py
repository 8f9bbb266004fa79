"""Rebuilding the store from the shared index, after the daemon that wrote it died.

Owns the translation of index records into entries. What is torn was dropped before; here chains are closed again, and
boundaries of groups made whole: a page goes when its predecessor is gone, or a page that it is tied to.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nexuskv.protocol.messages import SLOT_BITS
from nexuskv_daemon.core import reclaim, ties
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import COMMITTED, RETIRING, WRITING, Entry, State
from nexuskv_daemon.core.memory import Memory
from nexuskv_daemon.core.reservation import Reservation

Record = tuple[bytes, bytes, int, int, int, int, int, int, int, int, int]
"""Key, parent's key, segment, offset, length, tokens, owner or tie, checksum, tick, bucket, state."""

LIVE = 2
STATES: Mapping[int, State] = {1: WRITING, LIVE: COMMITTED, 3: RETIRING}
"""Of the states of the shared index (`nexuskv.h`, enum nx_state)."""


NOBODY = 0
"""Stands for the writer of a page whose commit was cut short: no session has this number, none writes it any more."""


@dataclass(slots=True)
class Restored:
    """What was found: the newest tick and tie, pages dropped with what they needed, and what sessions were writing."""

    tick: int = 0
    tie: int = 0
    pages: int = 0
    orphans: int = 0
    tied: ties.Recorded = field(default_factory=lambda: defaultdict(list))
    writing: dict[int, list[Reservation]] = field(default_factory=dict)
    """By session: one reservation for each of its arenas."""


@dataclass(slots=True)
class _Segment:
    """What is found in one segment, slot by slot: the entry, and the key of the page before it (none at a root)."""

    arena: Arena
    slot_bytes: int
    page_tokens: int
    entries: list[Entry | None]
    parents: list[bytes]


def restore(arenas: Mapping[int, Arena], memory: Memory, records: Iterable[Record]) -> Restored:
    """Fills empty arenas; every record lies in a segment that `memory` knows. A million take one to two seconds."""
    restored = Restored()
    segments = {number: _segment(record.arena, record.slots) for number, record in memory.ready.items()}
    _place(segments, records, restored)
    for number, segment in segments.items():
        segment.arena.pool.restore_segment(number, segment.entries)
    for reservation in restored.writing.pop(NOBODY, ()):
        reservation.abort()
    doomed = reclaim.below([*_link(segments.values()), *_tie(restored)])
    reclaim.retire_all(doomed)
    restored.orphans = len(doomed)
    for arena in arenas.values():
        for entry in arena.index.values():
            if not entry.children:
                arena.enqueue(entry)
    restored.pages = sum(len(arena.index) for arena in arenas.values())
    return restored


def _segment(arena: Arena, slots: int) -> _Segment:
    return _Segment(arena, arena.slot_bytes, arena.descriptor.page_tokens, [None] * slots, [b""] * slots)


def _place(segments: Mapping[int, _Segment], records: Iterable[Record], restored: Restored) -> None:
    """Makes the entries. Every client waits for this loop and that of `_link`: they make nothing but what stays."""
    for key, parent, number, offset, _, tokens, owner, _, tick, bucket, state in records:
        segment = segments[number]
        if tokens != segment.page_tokens:
            segment.arena.partial[key] = tokens
        slot = offset // segment.slot_bytes
        segment.entries[slot] = entry = Entry(segment.arena, key, number << SLOT_BITS | slot, None, tick)
        segment.parents[slot] = parent
        entry.bucket = bucket
        if state == LIVE:
            entry.state = COMMITTED
            segment.arena.index[key] = entry
        else:
            _place_unfinished(segment.arena, entry, state, owner, restored)
        if owner >= ties.TIED:
            restored.tied[owner] += (entry,) if state == LIVE else ()
        restored.tick = max(restored.tick, tick)


def _place_unfinished(arena: Arena, entry: Entry, state: int, owner: int, restored: Restored) -> None:
    entry.state = STATES[state]
    if entry.state is RETIRING:
        arena.retiring.add(entry)
        return
    arena.writing[entry.key] = entry
    theirs = restored.writing.setdefault(owner if owner < ties.TIED else NOBODY, [])
    reservation = next((each for each in theirs if each.arena is arena), None)
    if reservation is None:
        reservation = Reservation(0, arena)
        theirs.append(reservation)
    reservation.entries.append(entry)


def _link(segments: Iterable[_Segment]) -> Iterator[Entry]:
    """Hangs each page from the one before it. Gives those whose predecessor is gone.

    What was being written hangs from nothing: it will never be committed, so it needs no page, and holds none.
    """
    for segment in segments:
        arena, previous = segment.arena, None
        for entry, key in zip(segment.entries, segment.parents, strict=True):
            if entry is not None and key and entry.state is COMMITTED:
                # Most chains lie in slot after slot; to find a page by its key takes longer than all else here.
                near = previous is not None and previous.key == key and previous.state is COMMITTED
                parent = previous if near else arena.index.get(key)
                if parent is None:
                    yield entry
                else:
                    entry.parent = parent
                    parent.children += 1
            previous = entry


def _tie(restored: Restored) -> Iterator[Entry]:
    """Ties pages as they were. Gives those of boundaries that were not committed whole, or of which a page is gone."""
    for number, recorded in ties.by_number(restored.tied).items():
        restored.tie = max(restored.tie, number)
        kept, lost = ties.whole(recorded)
        yield from lost
        if kept:
            tie = ties.Tie(number, kept)
            if recorded.keys() != {ties.word(number, len(kept))}:
                tie.record()
