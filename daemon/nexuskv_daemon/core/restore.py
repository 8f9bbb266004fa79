"""Rebuilding the store from the shared index, after the daemon that wrote it died.

Owns the translation of index records into entries. What is torn was dropped before; here chains are closed again: a
page whose predecessor is gone goes too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nexuskv_daemon.core import reclaim
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import COMMITTED, RETIRING, WRITING, Entry, State
from nexuskv_daemon.core.memory import Memory
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.slots import SLOT_BITS, segment_of, slot_of


class Record(NamedTuple):
    """One entry of the shared index."""

    key: bytes
    parent: bytes
    segment: int
    arena: int
    offset: int
    length: int
    tokens: int
    owner: int
    checksum: int
    tick: int
    bucket: int
    state: int


STATES: Mapping[int, State] = {1: WRITING, 2: COMMITTED, 3: RETIRING}
"""Of the states of the shared index (`nexuskv.h`, enum nx_state)."""


@dataclass(slots=True)
class Restored:
    """What was found: the newest tick, pages whose predecessor is gone, and what sessions were writing."""

    tick: int = 0
    pages: int = 0
    orphans: int = 0
    writing: dict[tuple[int, int], Reservation] = field(default_factory=dict)
    """By session and arena number."""


def restore(arenas: Mapping[int, Arena], memory: Memory, records: Iterable[tuple[object, ...]]) -> Restored:
    """Fills empty arenas; every record lies in a segment that `memory` knows."""
    restored = Restored()
    links: list[tuple[Arena, Entry, bytes]] = []
    for record in map(Record._make, records):
        arena = arenas[record.arena]
        entry = _entry(arena, record)
        _place(arena, entry, record, restored)
        if record.parent and entry.state is not RETIRING and arena.chained:
            links.append((arena, entry, record.parent))
        restored.tick = max(restored.tick, record.tick)
    _restore_slots(arenas.values(), memory)
    _link(links, restored)
    for arena in arenas.values():
        for entry in arena.index.values():
            arena.enqueue(entry)
    restored.pages = sum(len(arena.index) for arena in arenas.values())
    return restored


def _entry(arena: Arena, record: Record) -> Entry:
    handle = record.segment << SLOT_BITS | record.offset // arena.slot_bytes
    entry = Entry(record.key, handle, None, record.tick)
    entry.bucket = record.bucket
    entry.state = STATES[record.state]
    return entry


def _place(arena: Arena, entry: Entry, record: Record, restored: Restored) -> None:
    if entry.state is COMMITTED:
        arena.index[entry.key] = entry
    elif entry.state is RETIRING:
        arena.retiring.add(entry)
    else:
        arena.writing[entry.key] = entry
        reservation = restored.writing.setdefault((record.owner, arena.number), Reservation(0, arena))
        reservation.entries.append(entry)


def _restore_slots(arenas: Iterable[Arena], memory: Memory) -> None:
    taken = {number: bytearray(record.slots) for number, record in memory.ready.items()}
    for arena in arenas:
        for entry in (*arena.index.values(), *arena.writing.values(), *arena.retiring):
            taken[segment_of(entry.handle)][slot_of(entry.handle)] = 1
    for number, record in memory.ready.items():
        record.arena.pool.restore_segment(number, record.slots, taken[number])


def _link(links: list[tuple[Arena, Entry, bytes]], restored: Restored) -> None:
    lost: dict[int, tuple[Arena, list[Entry]]] = {}
    for arena, entry, key in links:
        parent = arena.index.get(key) or arena.writing.get(key)
        if parent is not None:
            entry.parent = parent
            parent.children += 1
        else:
            lost.setdefault(arena.number, (arena, []))[1].append(entry)
    for arena, heads in lost.values():
        restored.orphans += _drop(arena, heads)


def _drop(arena: Arena, heads: list[Entry]) -> int:
    """Drops entries without predecessor and all below, as far as nothing is being written there."""
    evictable = set(reclaim.everything(arena))
    below = reclaim.below(arena, [entry for entry in heads if entry.state is COMMITTED])
    doomed = [entry for entry in below if entry in evictable]
    reclaim.retire_all(arena, doomed)
    return len(doomed)
