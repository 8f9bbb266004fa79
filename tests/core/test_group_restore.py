"""A daemon that dies at any single step of the record leaves whole boundaries, and nothing committed is lost."""

from random import Random

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from nexuskv.native import LIVE
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.check import check
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.restore import Restored
from nexuskv_daemon.core.store import Store
from tests.core.group_life import INDEX_ENTRIES, STEPS, Committed, Life, Step, run
from tests.core.recorder import Recorder

Place = tuple[int, bytes, int]
"""Arena, key and slot."""


class Died(Exception):
    """The daemon was killed."""


class Mortal(Recorder):
    """Takes each step of each entry by itself, and dies before the one after the last that is left."""

    left = 1 << 60

    def _live(self) -> None:
        if not self.left:
            raise Died
        self.left -= 1

    def reserve(self, arena: Arena, entries: list[Entry], owner: int) -> bool:
        if len(self._occupied) + len(entries) > self.capacity:
            return False
        for entry in entries:
            self._live()
            assert super().reserve(arena, [entry], owner)
        return True

    def commit(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._live()
            super().commit([entry])

    def tie(self, entries: list[Entry], word: int) -> None:
        for entry in entries:
            self._live()
            super().tie([entry], word)

    def retire(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._live()
            super().retire([entry])

    def abort(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._live()
            super().abort([entry])


def live(life: Life) -> set[Place]:
    """What stands on record as committed."""
    sizes = life.readers.sizes
    return {(sizes[at >> 32][0], r[0], at) for at, r in life.readers.records.items() if r[-1] == LIVE}


def places(entries: list[Entry]) -> set[Place]:
    return {(entry.arena.number, entry.key, entry.handle) for entry in entries}


def restored_places(store: Store) -> set[Place]:
    return {
        (number, key, entry.handle)
        for number, arena in store.arenas.items()
        for key, entry in arena.index.items()
    }


def die_in(life: Life, number: int, step: Step, after: int) -> bool:
    """Runs a step with so much of the record left to write. Whether the daemon died of it."""
    assert isinstance(life.readers, Mortal)
    life.readers.left = after
    try:
        run(life, number, step)
    except Died:
        return True
    finally:
        life.readers.left = 1 << 60
    return False


def holds_whole_boundaries(known: list[Committed], found: set[Place]) -> None:
    """Of each boundary, all pages are there, or none that was written with it."""
    for boundary in known:
        fresh, present = places(boundary.fresh), places(boundary.present)
        assert not fresh & found or fresh | present <= found


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS.filter(bool), after=st.integers(0, 40), order=st.randoms(use_true_random=False))
def test_a_daemon_killed_at_any_step_leaves_whole_boundaries(
    steps: list[Step], after: int, order: Random
) -> None:
    life = Life(Mortal(INDEX_ENTRIES))
    for number, step in enumerate(steps[:-1], start=1):
        run(life, number, step)
    settled = life.alive()
    life.boundaries.clear()
    before = live(life)
    die_in(life, len(steps), steps[-1], after)

    store, restored = life.next(order)
    check(store)
    found = restored_places(store)
    assert found <= live(life)
    holds_whole_boundaries(life.boundaries, found)
    if steps[-1][0] in ("commit", "abort", "read", "let go"):
        assert before <= found, "something committed was lost"
    for boundary in settled:
        there = places([*boundary.fresh, *boundary.present])
        assert there <= found or not there & found
    finish(life, store, restored)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, torn=st.integers(1, 4), order=st.randoms(use_true_random=False))
def test_what_was_torn_takes_its_boundaries_along(steps: list[Step], torn: int, order: Random) -> None:
    life = Life(Recorder(INDEX_ENTRIES))
    for number, step in enumerate(steps, start=1):
        run(life, number, step)
    known = life.alive()
    handles = sorted(life.readers.records)
    for handle in order.sample(handles, min(torn, len(handles))):
        life.readers.lose(handle)

    store, restored = life.next(order)
    check(store)
    found = restored_places(store)
    for boundary in known:
        there = places([*boundary.fresh, *boundary.present])
        assert there <= found or not there & found
    finish(life, store, restored)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(STEPS.filter(bool), min_size=2, max_size=3),
    after=st.integers(0, 40),
    order=st.randoms(use_true_random=False),
)
def test_the_next_daemon_goes_on_where_it_ended(steps: list[list[Step]], after: int, order: Random) -> None:
    """Through several deaths: what one daemon made whole, the next one keeps whole, and evicts as a whole."""
    life = Life(Mortal(INDEX_ENTRIES))
    for portion in steps:
        for number, step in enumerate(portion, start=1):
            if die_in(life, number, step, after if step is portion[-1] else 1 << 60):
                break
        store, restored = life.next(order)
        for reservations in restored.writing.values():
            for reservation in reservations:
                reservation.abort()
        life = continued(life, store)
        life.verify()


def continued(life: Life, store: Store) -> Life:
    """The same life in a new store: what it knows of boundaries, told in the new store's entries."""
    fresh = Life(life.readers)
    fresh.store = store
    for boundary in life.alive():
        there = [find(store, entry) for entry in (*boundary.fresh, *boundary.present)]
        if all(entry is not None for entry in there):
            fresh.boundaries.append(Committed([entry for entry in there if entry is not None], []))
    return fresh


def find(store: Store, old: Entry) -> Entry | None:
    entry = store.arenas[old.arena.number].index.get(old.key)
    return entry if entry is not None and entry.handle == old.handle else None


def finish(life: Life, store: Store, restored: Restored) -> None:
    """The writers are gone: everything can be evicted, and no slot is lost."""
    for reservations in restored.writing.values():
        for reservation in reservations:
            reservation.abort()
    check(store)
    for arena in store.arenas.values():
        store.evict_everything(arena)
        arena.reclaim()  # what was being evicted when the daemon died
    assert all(len(arena.pool) == arena.pool.capacity for arena in store.arenas.values())
    assert life.readers.records == {}
    check(store)
