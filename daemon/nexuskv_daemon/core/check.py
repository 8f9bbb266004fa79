"""Every invariant of the store in one place.

Owns the statement of what must always hold; tests call it after every step. It walks all entries, so the daemon itself
does not.
"""

from collections import Counter
from collections.abc import Collection

from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.check_branches import check_branches
from nexuskv_daemon.core.entries import COMMITTED, RETIRING, WRITING, Entry
from nexuskv_daemon.core.slots import segment_of, slot_of
from nexuskv_daemon.core.store import Store


def check(store: Store) -> None:
    """Raises AssertionError when an invariant of `store` is broken."""
    memory = store.memory
    assert memory.used == sum(r.nbytes for r in (*memory.ready.values(), *memory.pending.values()))
    assert memory.used <= memory.budget
    for arena in store.arenas.values():
        _check_states(arena)
        _check_slots(arena, memory.ready.keys())
        _check_chain(arena)
        _check_ties(arena)
        _check_eviction(arena)
    check_branches(store.branches, store.arenas.values())


def _entries(arena: Arena) -> list[Entry]:
    return [*arena.index.values(), *arena.writing.values(), *arena.retiring]


def _check_states(arena: Arena) -> None:
    """Each entry stands in the table of its state, under its own key; no key has two entries that count."""
    assert all(entry.state is COMMITTED and entry.key == key for key, entry in arena.index.items())
    assert all(
        entry.state is WRITING and entry.key == key and not entry.pins for key, entry in arena.writing.items()
    )
    assert all(entry.state is RETIRING for entry in arena.retiring)
    assert not arena.index.keys() & arena.writing.keys()
    assert arena.pinned == sum(1 for entry in arena.index.values() if entry.pins)
    assert all(entry.pins >= 0 for entry in _entries(arena))
    assert not any(key in arena.ghosts for key in arena.index)


def _check_slots(arena: Arena, ready: Collection[int]) -> None:
    """Every slot is free or belongs to one entry, and lies in a segment of the arena."""
    handles = [*arena.pool.free(), *(entry.handle for entry in _entries(arena))]
    assert len(set(handles)) == len(handles) == arena.pool.capacity
    for handle in handles:
        assert segment_of(handle) in ready
        assert slot_of(handle) < arena.pool.segments[segment_of(handle)]


def _check_chain(arena: Arena) -> None:
    """What is resident is closed under "prefix of", and the child counts are right."""
    children = Counter(entry.parent for entry in _entries(arena) if entry.parent is not None)
    for entry in _entries(arena):
        assert entry.children == children[entry]
        if entry.parent is None:
            continue
        assert arena.chained
        assert entry.parent.state is COMMITTED or (entry.parent.state is WRITING and entry.state is WRITING)


def _check_ties(arena: Arena) -> None:
    """A boundary is there as a whole. Pages being written know what they will be tied to, and that is there too."""
    for entry in arena.index.values():
        if entry.tie is not None:
            assert entry in entry.tie.entries
            assert all(other.tie is entry.tie and other.state is COMMITTED for other in entry.tie.entries)
    for entry in arena.writing.values():
        if entry.tie is not None:
            assert all(other.state is COMMITTED or other.tie is entry.tie for other in entry.tie.entries)
    assert all(entry.tie is None for entry in arena.retiring)
    assert all(face.arena in arena.partners for entry in _entries(arena) for face in entry.faces if entry.tie)


def _check_eviction(arena: Arena) -> None:
    """Every page that may go, with what goes with it, is known to the policies."""
    for entry in arena.index.values():
        if entry.evictable:
            assert all(face.queued for face in entry.faces)
