"""Rebuilding the store from the shared index, after the daemon that wrote it died.

Owns the translation of index records into entries. What is torn was dropped before; here chains are closed again: a
page whose predecessor is gone goes too.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nexuskv_daemon.core import reclaim
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import COMMITTED, RETIRING, WRITING, Entry, State
from nexuskv_daemon.core.memory import Memory
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.slots import SLOT_BITS

Record = tuple[bytes, bytes, int, int, int, int, int, int, int, int, int]
"""Key, parent's key, segment, offset, length, tokens, owner, checksum, tick, bucket, state."""

LIVE = 2
STATES: Mapping[int, State] = {1: WRITING, LIVE: COMMITTED, 3: RETIRING}
"""Of the states of the shared index (`nexuskv.h`, enum nx_state)."""


@dataclass(slots=True)
class Restored:
    """What was found: the newest tick, pages whose predecessor is gone, and what sessions were writing."""

    tick: int = 0
    pages: int = 0
    orphans: int = 0
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
    for arena, heads in _link(segments.values()).items():
        restored.orphans += _drop(arena, heads)
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
        segment.entries[slot] = entry = Entry(key, number << SLOT_BITS | slot, None, tick)
        segment.parents[slot] = parent
        entry.bucket = bucket
        if state == LIVE:
            entry.state = COMMITTED
            segment.arena.index[key] = entry
        else:
            _place_unfinished(segment.arena, entry, state, owner, restored)
        restored.tick = max(restored.tick, tick)


def _place_unfinished(arena: Arena, entry: Entry, state: int, owner: int, restored: Restored) -> None:
    entry.state = STATES[state]
    if entry.state is RETIRING:
        arena.retiring.add(entry)
        return
    arena.writing[entry.key] = entry
    theirs = restored.writing.setdefault(owner, [])
    reservation = next((each for each in theirs if each.arena is arena), None)
    if reservation is None:
        reservation = Reservation(0, arena)
        theirs.append(reservation)
    reservation.entries.append(entry)


def _link(segments: Iterable[_Segment]) -> dict[Arena, list[Entry]]:
    """Hangs each page from the one before it. Returns those whose predecessor is gone."""
    lost: dict[Arena, list[Entry]] = defaultdict(list)
    for segment in segments:
        arena, previous = segment.arena, None
        for entry, key in zip(segment.entries, segment.parents, strict=True):
            if entry is not None and key and entry.state is not RETIRING:
                # Most chains lie in slot after slot; to find a page by its key takes longer than all else here.
                near = previous is not None and previous.key == key and previous.state is COMMITTED
                parent = previous if near else arena.index.get(key)
                if parent is None and entry.state is WRITING:
                    parent = arena.writing.get(key)
                if parent is None:
                    lost[arena].append(entry)
                else:
                    entry.parent = parent
                    parent.children += 1
            previous = entry
    return lost


def _drop(arena: Arena, heads: list[Entry]) -> int:
    """Drops entries without predecessor and all below, as far as nothing is being written there."""
    evictable = set(reclaim.everything(arena))
    below = reclaim.below(arena, [entry for entry in heads if entry.state is COMMITTED])
    doomed = [entry for entry in below if entry in evictable]
    reclaim.retire_all(arena, doomed)
    return len(doomed)
