"""The store against a plain dict model, step by step, with every invariant checked after each."""

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from nexuskv.contract import Descriptor, mha
from nexuskv.errors import ArenaFull, NotReserved, ParentMissing
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.check import check
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.store import Store
from tests.core.readers import Readers

SEGMENT = 4096
SLOTS_A_SEGMENT = 8
SEGMENTS = 3


def descriptor(name: str) -> Descriptor:
    """Pages of 512 bytes, so that a segment of one machine page holds eight."""
    dtype = {"a": "bfloat16", "b": "float16"}[name]
    return mha(name, layers=1, kv_heads=1, head_dim=8, page_tokens=16, dtype=dtype, engine_family="VLLM")


def chain(branch: int, length: int) -> list[bytes]:
    """Keys of a tree: branches share their first `branch` pages with the branch before."""
    return [
        min(branch, depth).to_bytes(2, "big").rjust(8, b"k") + depth.to_bytes(24, "big")
        for depth in range(length)
    ]


class StoreMachine(RuleBasedStateMachine):
    """The model knows which keys were committed and not yet seen to go, and whose slot holds which key."""

    reservations = Bundle("reservations")
    hits = Bundle("hits")
    reads = Bundle("reads")

    @initialize()
    def start(self) -> None:
        self.readers = Readers(capacity=22)
        self.store = Store(SEGMENT * SEGMENTS, SEGMENT, lambda _: self.readers)
        self.arenas = [self.store.register("t", descriptor(name)) for name in ("a", "b")]
        self.committed: list[dict[bytes, int]] = [{}, {}]
        self.pinned: list[tuple[Arena, list[tuple[bytes, int]]]] = []

    def _reserve(self, which: int, keys: list[bytes]) -> tuple[Reservation, list[int]] | None:
        """None when the arena is full; segments are made as soon as the store asks for them."""
        with contextlib.suppress(ArenaFull):
            while (granted := self.store.reserve(self.arenas[which], keys, b"", None, 0.0)) is None:
                self._make_segments()
            return granted[0], granted[1].positions
        self._make_segments()
        return None

    def _make_segments(self) -> None:
        for record in self.store.room.planned:
            self.store.memory.made(record.number)
        self.store.room.planned.clear()
        self.store.room.dropped.clear()

    @rule(target=reservations, which=st.integers(0, 1), branch=st.integers(0, 5), length=st.integers(1, 12))
    def reserve(self, which: int, branch: int, length: int) -> tuple[int, Reservation | None]:
        arena, keys = self.arenas[which], chain(branch, length)
        before = self._resident(which)
        writing = set(arena.writing)
        granted = self._reserve(which, keys)
        self._forget_evicted()
        if granted is None:
            needed = sum(key not in before for key in keys)
            assert needed > len(arena.pool) or needed + len(self.readers.found) > 0
            return which, None
        reservation, positions = granted
        wanted = [key for key in keys if key not in before]
        free = wanted[: next((at for at, key in enumerate(wanted) if key in writing), len(wanted))]
        assert [keys[position] for position in positions] == free
        return which, reservation if reservation.entries else None

    @rule(held=consumes(reservations))
    def commit(self, held: tuple[int, Reservation | None]) -> None:
        which, reservation = held
        if reservation is None:
            return
        assert reservation.commit([], rest=True) == len(reservation.entries)
        self.committed[which].update((entry.key, entry.handle) for entry in reservation.entries)

    @rule(held=consumes(reservations), cut=st.integers(0, 12))
    def commit_some_then_abort(self, held: tuple[int, Reservation | None], cut: int) -> None:
        which, reservation = held
        if reservation is None:
            return
        first = reservation.entries[:cut]
        reservation.commit(list(range(len(first))), rest=False)
        self.committed[which].update((entry.key, entry.handle) for entry in first)
        if first:
            with pytest.raises(NotReserved):
                reservation.commit([0], rest=False)
        if len(reservation.entries) > len(first) + 1:
            with pytest.raises(ParentMissing):
                reservation.commit([len(first) + 1], rest=False)
        reservation.abort()

    @rule(target=hits, which=st.integers(0, 1), branch=st.integers(0, 5), length=st.integers(1, 12))
    def pin(self, which: int, branch: int, length: int) -> tuple[Arena, list[Entry], list[tuple[bytes, int]]]:
        arena, keys = self.arenas[which], chain(branch, length)
        start, entries = self.store.pin(arena, keys)
        found = [(entry.key, entry.handle) for entry in entries]
        model = self.committed[which]
        expected = [key for key in keys if key in model]
        assert start == 0
        # Closure makes "resident among the keys" and "leading run" the same thing.
        assert [key for key, _ in found] == expected == keys[: len(expected)]
        assert all(model[key] == handle for key, handle in found)
        return arena, entries, found

    @rule(hit=consumes(hits))
    def unpin(self, hit: tuple[Arena, list[Entry], list[tuple[bytes, int]]]) -> None:
        arena, entries, found = hit
        assert [(entry.key, entry.handle) for entry in entries] == found
        free = set(arena.pool.free())
        assert not free & {handle for _, handle in found}, "a pinned slot was given away"
        arena.unpin(entries)

    @rule(target=reads, which=st.integers(0, 1), branch=st.integers(0, 5), length=st.integers(1, 12))
    def read_unasked(self, which: int, branch: int, length: int) -> list[int]:
        """A reader pins what it finds in the shared index; the store hears of it only when it frees slots."""
        number = self.arenas[which].number
        keys = [(number, key) for key in chain(branch, length) if (number, key) in self.readers.found]
        pinned = [self.readers.found[key] for key in keys]
        self.readers.touched += [(handle >> 32, key) for handle, (_, key) in zip(pinned, keys, strict=True)]
        self.readers.pins.update(pinned)
        return pinned

    @rule(pinned=consumes(reads))
    def stop_reading(self, pinned: list[int]) -> None:
        free = {handle for arena in self.arenas for handle in arena.pool.free()}
        assert not free & set(pinned), "a page was freed under its reader"
        self.readers.pins.subtract(pinned)
        for arena in self.arenas:
            arena.reclaim()
            for entry in arena.retiring:
                assert entry.pins or self.readers.pins[entry.handle], "a slot nobody reads was kept"

    @rule(which=st.integers(0, 1), pages=st.integers(1, 10))
    def evict(self, which: int, pages: int) -> None:
        arena = self.arenas[which]
        before = len(arena.index)
        evicted = self.store.evict(arena, pages * arena.slot_bytes)
        gone = evicted.pages + evicted.retiring
        assert gone <= pages
        assert evicted.nbytes == evicted.pages * arena.slot_bytes
        assert len(arena.index) == before - gone
        self._forget_evicted()

    @rule(which=st.integers(0, 1))
    def evict_everything(self, which: int) -> None:
        evicted = self.store.evict_everything(self.arenas[which])
        assert evicted.pages + evicted.retiring == len(self.committed[which]) - len(self.arenas[which].index)
        self._forget_evicted()

    def _resident(self, which: int) -> set[bytes]:
        return set(self.committed[which])

    def _forget_evicted(self) -> None:
        """The model does not predict victims; it holds that whatever stays keeps its slot, and nothing appears."""
        for model, arena in zip(self.committed, self.arenas, strict=True):
            for key in [key for key in model if key not in arena.index]:
                del model[key]

    @invariant()
    def same_pages_in_the_same_slots(self) -> None:
        if not hasattr(self, "store"):
            return
        check(self.store)
        for model, arena in zip(self.committed, self.arenas, strict=True):
            assert {key: entry.handle for key, entry in arena.index.items()} == model
            assert {
                key: at for (number, key), at in self.readers.found.items() if number == arena.number
            } == model


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
