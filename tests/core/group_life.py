"""A store in which boundaries of groups and pages of single descriptors are written, read and evicted, and its model.

The model is the list of what was committed: for every boundary its entries, those that were there before included.
"""

import contextlib
from dataclasses import dataclass, field
from random import Random

import hypothesis.strategies as st

import nexuskv
from nexuskv.contract import Descriptor, Window
from nexuskv.errors import ArenaFull
from nexuskv_daemon.core import groups
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.check import check
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.groups import GroupReservation, Part
from nexuskv_daemon.core.memory import SegmentRecord
from nexuskv_daemon.core.restore import Restored, restore
from nexuskv_daemon.core.store import Store
from tests.core.recorder import Recorder

SEGMENT = 4096
SEGMENTS = 6
INDEX_ENTRIES = 36
LENGTH = 6
"""Longest chain, in boundaries of the first group."""
GROUPS = (((0, 2), (1, 1)), ((0, 1), (2, 1)), ((1, 1), (2, 2)), ((0, 2), (1, 1), (2, 2)))
"""Of each group its members: an arena, and its pages in one boundary."""


def descriptors() -> list[Descriptor]:
    """Attention of 512 bytes a page, a checkpoint of twice the tokens and 1,024 bytes, and a window, 256 bytes."""
    return [
        nexuskv.mha(
            "attention", layers=1, kv_heads=1, head_dim=8, page_tokens=16, dtype="bfloat16", engine_family="VLLM"
        ),
        nexuskv.mamba2(
            "checkpoint", heads=1, head_dim=16, state_size=16, page_tokens=32, dtype="bfloat16", engine_family="VLLM"
        ),
        nexuskv.mha(
            "window", layers=1, kv_heads=1, head_dim=4, page_tokens=16, dtype="bfloat16", engine_family="VLLM",
            reuse=Window(tokens=40),
        ),
    ]  # fmt: skip


def chain(arena: int, branch: int, pages: int) -> list[bytes]:
    """Keys of a tree, as in the store's own test; each arena has its own."""
    return [
        bytes([arena, min(branch, depth // 2)]).rjust(8, b"k") + depth.to_bytes(24, "big")
        for depth in range(pages)
    ]


@dataclass
class Committed:
    """A boundary: `fresh` was written with it, `present` was there."""

    fresh: list[Entry]
    present: list[Entry]


@dataclass
class Life:
    """A store, its readers, and what was committed so far; `readers` may die at any step."""

    readers: Recorder
    store: Store = field(init=False)
    boundaries: list[Committed] = field(default_factory=list)
    open: list[GroupReservation] = field(default_factory=list)
    hits: list[list[Entry]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(SEGMENT * SEGMENTS, SEGMENT, lambda _: self.readers)
        for descriptor in descriptors():
            self.store.register("t", descriptor)

    @property
    def arenas(self) -> list[Arena]:
        return list(self.store.arenas.values())

    def write_group(self, session: int, which: int, branch: int, length: int) -> GroupReservation | None:
        """Reserves boundaries; None when there is no room."""
        members = GROUPS[which]
        parts = [
            Part(self.arenas[arena], chain(arena, branch, pages * length), b"", pages)
            for arena, pages in members
        ]
        with contextlib.suppress(ArenaFull):
            while (granted := groups.reserve(self.store, parts, length, None, 0.0, session)) is None:
                self.make_segments()
            self.open.append(granted.reservation)
            self.make_segments()
            return granted.reservation
        self.make_segments()
        return None

    def write_single(self, session: int, which: int, branch: int, length: int) -> None:
        """Reserves and commits pages of one descriptor."""
        with contextlib.suppress(ArenaFull):
            keys = chain(which, branch, length)
            while (granted := self.store.reserve(self.arenas[which], keys, b"", None, 0.0, session)) is None:
                self.make_segments()
            granted[0].commit([], rest=True)
        self.make_segments()

    def commit(self, reservation: GroupReservation, count: int) -> None:
        """Commits the next `count` boundaries of a reservation."""
        first = reservation.committed
        places = list(range(len(reservation.boundaries)))[first : first + count]
        chosen = [reservation.boundaries[place] for place in places]
        self.boundaries += [Committed(list(each.fresh), list(each.present)) for each in chosen]
        reservation.commit(places, rest=False)

    def read(self, which: int, branch: int, length: int) -> None:
        """Pins a prefix of one member."""
        _, entries = self.store.pin(self.arenas[which], chain(which, branch, length))
        if entries:
            self.hits.append(entries)

    def let_go(self, hit: list[Entry]) -> None:
        self.hits.remove(hit)
        hit[0].arena.unpin(hit)

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

    def make_segments(self) -> None:
        for record in self.store.room.planned:
            self.store.memory.made(record.number)
        self.store.room.planned.clear()
        self.store.room.dropped.clear()

    def resident(self) -> set[Entry]:
        return {entry for arena in self.arenas for entry in arena.index.values()}

    def alive(self) -> list[Committed]:
        """Boundaries that were not evicted."""
        resident = self.resident()
        return [each for each in self.boundaries if resident.issuperset((*each.fresh, *each.present))]

    def verify(self) -> None:
        """Every boundary that was committed is there as a whole, or gone as a whole."""
        check(self.store)
        resident = self.resident()
        for boundary in self.boundaries:
            there = [entry in resident for entry in (*boundary.fresh, *boundary.present)]
            assert all(there) or not any(there)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["group", "group", "group", "single", "commit", "commit", "abort", "read", "let go", "evict", "everything"]
        ),
        st.integers(0, 3), st.integers(0, 3), st.integers(1, LENGTH), st.integers(0, 9),
    ),
    max_size=40,
)  # fmt: skip
Step = tuple[str, int, int, int, int]


def run(life: Life, number: int, step: Step) -> None:
    """One step of a life; what it cannot do, it leaves."""
    what, which, branch, length, some = step
    arena = life.arenas[which % 3]
    match what:
        case "group":
            reservation = life.write_group(number, which, branch, length)
            if reservation is not None:
                life.commit(reservation, some)
        case "single":
            life.write_single(number, which % 3, branch, length)
        case "read":
            life.read(which % 3, branch, length)
        case "evict":
            life.store.evict(arena, some * arena.slot_bytes)
        case "everything":
            life.store.evict_everything(arena)
        case _:
            _end_something(life, what, length, some)


def _end_something(life: Life, what: str, length: int, some: int) -> None:
    if what == "let go" and life.hits:
        life.let_go(life.hits[some % len(life.hits)])
    elif what == "commit" and life.open:
        life.commit(life.open[some % len(life.open)], length)
    elif what == "abort" and life.open:
        life.open.pop(some % len(life.open)).abort()
