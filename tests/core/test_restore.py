"""A store rebuilt from what its readers were told is the same store, whenever its daemon died and whatever was torn."""

import contextlib
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from nexuskv.errors import ArenaFull
from nexuskv.native import LIVE, RETIRING, WRITING
from nexuskv_daemon.core.check import check
from nexuskv_daemon.core.memory import SegmentRecord
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.restore import Restored, restore
from nexuskv_daemon.core.store import Store
from tests.core.recorder import Recorder
from tests.core.test_store_machine import SEGMENT, SEGMENTS, chain, descriptor

Pages = dict[bytes, int]
Step = tuple[str, int, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "read", "evict", "everything", "abort"]),
        st.integers(0, 1), st.integers(0, 5), st.integers(1, 12), st.integers(0, 12),
    ),
    max_size=30,
)  # fmt: skip


class Life:
    """A store, its readers, and what its sessions were writing."""

    def __init__(self) -> None:
        self.readers = Recorder(capacity=22)
        self.store = Store(SEGMENT * SEGMENTS, SEGMENT, lambda _: self.readers)
        for name in ("a", "b"):
            self.store.register("t", descriptor(name))
        self.open: list[Reservation] = []

    def run(self, steps: list[Step]) -> None:
        for session, (what, which, branch, length, some) in enumerate(steps, start=1):
            arena = self.store.arenas[which + 1]
            if what == "write":
                self.write(session, which, chain(branch, length), some)
            elif what == "read":
                found = (self.readers.found.get((arena.number, key)) for key in chain(branch, length))
                self.readers.pins.update(handle for handle in found if handle is not None)
            elif what == "evict":
                self.store.evict(arena, some * arena.slot_bytes)
            elif what == "everything":
                self.store.evict_everything(arena)
            elif self.open:
                self.open.pop(some % len(self.open)).abort()

    def write(self, session: int, which: int, keys: list[bytes], some: int) -> None:
        """Reserves, and commits the first `some` pages; the rest stays unwritten unless that is all."""
        arena = self.store.arenas[which + 1]
        with contextlib.suppress(ArenaFull):
            while (granted := self.store.reserve(arena, keys, b"", None, 0.0, session)) is None:
                self.make_segments()
            reservation = granted[0]
            reservation.commit(list(range(min(some, len(reservation.entries)))), rest=False)
            self.open.append(reservation)
        self.make_segments()

    def make_segments(self) -> None:
        for record in self.store.room.planned:
            self.store.memory.made(record.number)
        self.store.room.planned.clear()
        self.store.room.dropped.clear()

    def next(self, order: Random) -> tuple[Store, Restored]:
        """The store of the daemon that comes after; records come in any order."""
        store = Store(SEGMENT * SEGMENTS, SEGMENT, lambda _: self.readers)
        for number, arena in self.store.arenas.items():
            store.restore_arena(number, "t", arena.descriptor)
        for segment, (number, slots, nbytes) in self.readers.sizes.items():
            store.memory.restore(SegmentRecord(segment, store.arenas[number], slots, nbytes))
        records = list(self.readers.records.values())
        order.shuffle(records)
        restored = restore(store.arenas, store.memory, records)
        store.resume(restored.tick, restored.tie)
        return store, restored


def pages(life: Life, state: int) -> list[Pages]:
    """Keys and handles of the records in a state, by arena."""
    found: list[Pages] = [{}, {}]
    for handle, record in life.readers.records.items():
        if record[-1] == state:
            found[life.readers.sizes[handle >> 32][0] - 1][record[0]] = handle
    return found


@settings(deadline=None)
@given(steps=STEPS, order=st.randoms(use_true_random=False))
def test_every_page_is_where_it_was(steps: list[Step], order: Random) -> None:
    life = Life()
    life.run(steps)
    committed, writing = pages(life, LIVE), pages(life, WRITING)
    retiring = {handle for handle, record in life.readers.records.items() if record[-1] == RETIRING}
    store, restored = life.next(order)

    check(store)
    for number, arena in store.arenas.items():
        before = life.store.arenas[number]
        assert {key: entry.handle for key, entry in arena.index.items()} == committed[number - 1]
        assert {key: entry.handle for key, entry in arena.writing.items()} == writing[number - 1]
        assert sorted(arena.pool.free()) == sorted(before.pool.free())
        for key, entry in arena.index.items():
            parent = before.index[key].parent
            assert (entry.parent.key if entry.parent else None) == (parent.key if parent else None)
    assert {entry.handle for arena in store.arenas.values() for entry in arena.retiring} == retiring
    assert (restored.orphans, restored.pages) == (0, sum(map(len, committed)))
    finish(life, store, restored)


@settings(deadline=None)
@given(steps=STEPS, order=st.randoms(use_true_random=False), torn=st.integers(1, 8))
def test_without_what_was_torn_it_is_still_a_store(steps: list[Step], order: Random, torn: int) -> None:
    life = Life()
    life.run(steps)
    for handle in order.sample(sorted(life.readers.records), min(torn, len(life.readers.records))):
        life.readers.lose(handle)
    before = pages(life, LIVE)
    store, restored = life.next(order)

    check(store)
    for arena, known in zip(store.arenas.values(), before, strict=True):
        assert {key: entry.handle for key, entry in arena.index.items()}.items() <= known.items()
    finish(life, store, restored)


def finish(life: Life, store: Store, restored: Restored) -> None:
    """The writers are gone, the readers let go: everything can be evicted, and no slot is lost."""
    for reservations in restored.writing.values():
        for reservation in reservations:
            reservation.abort()
    check(store)
    for arena in store.arenas.values():
        store.evict_everything(arena)
        pinned = {entry.handle for entry in arena.retiring}
        assert all(life.readers.pins[handle] for handle in pinned)
    life.readers.pins.clear()
    for arena in store.arenas.values():
        arena.reclaim()
        assert len(arena.pool) == arena.pool.capacity
    check(store)
    assert life.readers.records == {}
