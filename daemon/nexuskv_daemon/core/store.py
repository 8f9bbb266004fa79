"""All arenas of the host, and every operation on their entries.

Owns the rules that span entries: prefix closure, one writer a key, pins, room within the budget. Knows nothing of
sessions, messages or memory: it deals in keys and handles. `check.py` holds every invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nexuskv.contract import Descriptor, differing_fields, usable
from nexuskv.errors import BadRequest, DescriptorConflict, NexusError, ParentMissing
from nexuskv_daemon.core import reclaim
from nexuskv_daemon.core.arena import Arena, by_arena
from nexuskv_daemon.core.entries import COMMITTED, RETIRING, Entry
from nexuskv_daemon.core.eviction import EvictionPolicy, LeafLru
from nexuskv_daemon.core.lineage import Lineage
from nexuskv_daemon.core.memory import Memory
from nexuskv_daemon.core.publication import Publication
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.room import Room
from nexuskv_daemon.core.ties import Numbers

MAX_ARENAS = 1024
"""Of one tenant. Descriptors are few; thousands are a loop that makes a new one at every turn."""
MAX_DESCRIPTORS = 4 * MAX_ARENAS
"""Ids of one tenant, of which several may name the same contract."""


@dataclass(slots=True)
class Plan:
    """What a reservation would write: places in the request's keys, and the entry before each where it is resident."""

    positions: list[int]
    parents: list[Entry | None]
    busy: int


class Evicted(NamedTuple):
    """What went, in pages and bytes, and how many pages more wait for their last pin."""

    pages: int
    nbytes: int
    retiring: int


class Store:
    """Arenas by number; `budget` and `segment_bytes` in bytes, `publication` makes a tenant's."""

    def __init__(
        self,
        budget: int,
        segment_bytes: int,
        publication: Callable[[str], Publication],
        policy: Callable[[], EvictionPolicy] = LeafLru,
        branches: Lineage | None = None,
    ) -> None:
        self.memory = Memory(budget, segment_bytes)
        self.room = Room(self.memory)
        self.arenas: dict[int, Arena] = {}
        self.branches = branches or Lineage()
        self._by_contract: dict[tuple[str, bytes], Arena] = {}
        self._by_id: dict[tuple[str, str], Descriptor] = {}
        self._policy = policy
        self._publication = publication
        self._publications: dict[str, Publication] = {}
        self.reservations = Numbers()
        self.ties = Numbers()
        self._tick = 0

    def register(self, tenant: str, descriptor: Descriptor) -> Arena:
        """The arena of a descriptor; equal physical contracts share one. Raises DescriptorConflict."""
        known = self._by_id.get((tenant, descriptor.descriptor_id))
        if known is not None and known != descriptor:
            raise DescriptorConflict(
                f"descriptor {descriptor.descriptor_id!r} is registered with other content, differing in "
                f"{', '.join(differing_fields(known, descriptor))}: give the new content an id of its own"
            )
        arena = self._by_contract.get((tenant, descriptor.digest))
        if arena is None:
            self._refuse_too_many(tenant)
            arena = Arena(len(self.arenas) + 1, tenant, descriptor, self._policy(), self.publication(tenant))
        if known is None:
            self._refuse_too_many_names(tenant)
            arena.publication.announce(arena, descriptor)
            self._by_id[tenant, descriptor.descriptor_id] = descriptor
        self.arenas[arena.number] = self._by_contract[tenant, descriptor.digest] = arena
        return arena

    def restore_arena(self, number: int, tenant: str, descriptor: Descriptor) -> Arena:
        """A descriptor that an earlier daemon knew, and its arena, empty as yet."""
        arena = self.arenas.get(number)
        if arena is None:
            arena = Arena(number, tenant, descriptor, self._policy(), self.publication(tenant))
        self._by_id[tenant, descriptor.descriptor_id] = descriptor
        self.arenas[number] = self._by_contract[tenant, descriptor.digest] = arena
        return arena

    def fit(self) -> None:
        """Gives up whole segments until what an earlier daemon left fits the budget, as far as nobody uses them."""
        self._heed_hints()
        self.room.shrink(self.arenas.values())

    def described(self, tenant: str, descriptor_id: str) -> Descriptor | None:
        """The descriptor that the tenant registered under an id."""
        return self._by_id.get((tenant, descriptor_id))

    def arena_of(self, tenant: str, digest: bytes) -> Arena | None:
        """The arena of pages with that physical contract, if the tenant has registered one."""
        return self._by_contract.get((tenant, digest))

    def home(self, tenant: str, key: bytes) -> Arena | None:
        """The tenant's arena in which `key` is resident."""
        theirs = (arena for arena in self.arenas.values() if arena.tenant == tenant)
        return next((arena for arena in theirs if key in arena.index), None)

    def _refuse_too_many(self, tenant: str) -> None:
        if sum(1 for arena in self.arenas.values() if arena.tenant == tenant) >= MAX_ARENAS:
            raise BadRequest(
                f"this tenant has {MAX_ARENAS} arenas already, and each is kept: use one descriptor for all pages alike"
            )

    def _refuse_too_many_names(self, tenant: str) -> None:
        if sum(1 for owner, _ in self._by_id if owner == tenant) >= MAX_DESCRIPTORS:
            raise BadRequest(
                f"this tenant has {MAX_DESCRIPTORS} descriptor ids already, and each is kept: use one for pages alike"
            )

    def resume(self, tick: int, tie: int) -> None:
        """Goes on counting uses and ties after the newest ones restored."""
        self._tick = max(self._tick, tick)
        self.ties.last = max(self.ties.last, tie)

    def publication(self, tenant: str) -> Publication:
        """Where the entries of `tenant` are made known."""
        found = self._publications.get(tenant)
        if found is None:
            found = self._publications[tenant] = self._publication(tenant)
        return found

    def pin(self, arena: Arena, keys: list[bytes], *, whole: bool = False) -> tuple[int, list[Entry]]:
        """Pins the longest restorable boundary, or all of `keys` or nothing. Returns where in `keys` it starts."""
        start, entries = self._restorable(arena, keys, whole=whole)
        self._tick += 1
        arena.pin(entries, self._tick)
        arena.counters.hits += len(entries)
        arena.counters.misses += len(keys) - start - len(entries)
        return start, entries

    def reserve(
        self,
        arena: Arena,
        keys: list[bytes],
        parent: bytes,
        reservation: Reservation | None,
        now: float,
        owner: int = 0,
    ) -> tuple[Reservation, Plan] | None:
        """Slots for every absent key, all or none; None while a segment is being made: ask again when it is there.

        `owner` is the session that will write them. Raises ArenaFull, ParentMissing, and BadRequest for repeated keys.
        """
        plan = self.plan(arena, keys, parent, reservation.entries if reservation is not None else ())
        guards = self.hold(plan.parents)  # room is not made by evicting what the new pages hang from
        try:
            entries = self.grant(arena, keys, plan, now, owner)
        finally:
            self.let_go(guards)
        if entries is None:
            return None
        if reservation is None:
            reservation = Reservation(self.reservations.next(), arena)
        reservation.entries += entries
        return reservation, plan

    def hold(self, entries: Iterable[Entry | None]) -> set[Entry]:
        """Keeps the committed ones of `entries` from being evicted for want of room, until they are `let_go`."""
        self._tick += 1
        held = {entry for entry in entries if entry is not None and entry.state is COMMITTED}
        for arena, own in by_arena(held).items():
            arena.pin(own, self._tick)
        return held

    def let_go(self, held: Iterable[Entry]) -> None:
        """Ends `hold`."""
        for arena, own in by_arena(held).items():
            arena.unpin(own)

    def make_room(self, arena: Arena, need: int, now: float) -> bool:
        """Whether `need` slots are free now; if not, a segment is being made. Raises ArenaFull."""
        if len(arena.pool) < need:
            self._heed_hints()
        return self.room.make(arena, need, self.arenas.values(), now)

    def touch(self) -> int:
        """The tick of what is used just now."""
        self._tick += 1
        return self._tick

    def plan(self, arena: Arena, keys: list[bytes], parent: bytes, own: Collection[Entry]) -> Plan:
        """What would be written of `keys`; `own` are entries of the reservation that this adds to.

        Raises ParentMissing, and BadRequest for repeated keys.
        """
        before = self._parent(arena, parent, own)
        if keys and arena.knows_none(keys):  # most often, and quicker than key by key
            _refuse_below_partial(arena, before)
            plan = Plan(list(range(len(keys))), [before] + [None] * (len(keys) - 1), 0)
            _refuse_repeats(keys, plan)
            return plan
        plan = Plan([], [], 0)
        touched = self._tick + 1
        for position, key in enumerate(keys):
            entry = arena.index.get(key)
            if entry is not None:
                entry.tick = touched
                before = entry
            elif key in arena.writing or key in arena.vacated:
                plan.busy += 1
                if arena.chained:  # nothing is granted below a page that another session may still abort
                    plan.busy = len(keys) - position
                    break
            else:
                _refuse_below_partial(arena, before)
                plan.positions.append(position)
                plan.parents.append(before if arena.chained else None)
                before = None
        _refuse_repeats(keys, plan)
        return plan

    def grant(
        self, arena: Arena, keys: list[bytes], plan: Plan, now: float, owner: int
    ) -> list[Entry] | None:
        """The planned entries, WRITING; None while a segment is being made. Raises ArenaFull."""
        if len(arena.pool) < len(plan.positions):
            self._heed_hints()
        if not self.room.make(arena, len(plan.positions), self.arenas.values(), now):
            return None
        return self._admitted(arena, keys, plan, owner)

    def evict(self, arena: Arena, nbytes: int) -> Evicted:
        """Evicts pages of at least `nbytes` in the policy's order, if there are so many, and what goes with them."""
        self._heed_hints()
        return _evicted(self.room.evict(arena, -(-nbytes // arena.slot_bytes)))

    def evict_everything(self, arena: Arena) -> Evicted:
        """Evicts every page that no page being written needs, pinned ones too, and what goes with them."""
        doomed = reclaim.everything(arena)
        reclaim.retire_all(doomed)
        return _evicted(doomed)

    def owner(self, arena: Arena, key: bytes) -> Arena | None:
        """Another arena of the same tenant that has `key`."""
        for other in self.arenas.values():
            if other is not arena and other.tenant == arena.tenant and key in other.index:
                return other
        return None

    def _restorable(self, arena: Arena, keys: list[bytes], *, whole: bool) -> tuple[int, list[Entry]]:
        if arena.chained or whole:
            run = _leading(arena, keys)
            return (0, run) if len(run) == len(keys) or not whole else (0, [])
        entries = [arena.index.get(key) for key in keys]
        chosen = usable(
            arena.descriptor.reuse, [entry is not None for entry in entries], arena.descriptor.page_tokens
        )
        return chosen.start, [entry for entry in entries[chosen.start : chosen.stop] if entry is not None]

    def _parent(self, arena: Arena, key: bytes, own: Collection[Entry]) -> Entry | None:
        if not key or not arena.chained:
            return None
        entry = arena.index.get(key) or arena.writing.get(key)
        if entry is None:
            raise ParentMissing(
                "the page before the first key is not resident: match or reserve the chain from its root"
            )
        if entry.state is not COMMITTED and entry not in own:
            raise ParentMissing(
                "the page before the first key is still being written by another reservation: try again later"
            )
        return entry

    def _admitted(self, arena: Arena, keys: list[bytes], plan: Plan, owner: int) -> list[Entry]:
        """Makes the WRITING entries; evicts when the shared index is full though slots are free."""
        entries = self._fresh(arena, keys, plan)
        try:
            while not arena.admit(entries, owner):
                self._heed_hints()
                siblings = [each for each in self.arenas.values() if each.tenant == arena.tenant]
                if not self.room.make_entries(siblings, len(entries)):
                    raise self.room.index_full(arena, len(entries))
        except NexusError:
            arena.pool.give(entry.handle for entry in entries)
            raise
        return entries

    def _fresh(self, arena: Arena, keys: list[bytes], plan: Plan) -> list[Entry]:
        """A page whose parent is granted just before it hangs from that one."""
        entries: list[Entry] = []
        handles = arena.pool.take(len(plan.positions))
        chained, tick = arena.chained, self._tick
        before, next_position = None, -1
        for position, resident, handle in zip(plan.positions, plan.parents, handles, strict=True):
            parent = before if chained and position == next_position else resident
            before = Entry(arena, keys[position], handle, parent, tick)
            entries.append(before)
            next_position = position + 1
        return entries

    def _heed_hints(self) -> None:
        """Takes in what readers used without asking, because somebody will have to go."""
        self._tick += 1
        for publication in self._publications.values():
            for segment, key in publication.used():
                entry = self.memory.ready[segment].arena.index.get(key)
                if entry is not None:
                    entry.tick = self._tick


def _evicted(entries: list[Entry]) -> Evicted:
    gone = [entry for entry in entries if entry.state is not RETIRING]
    return Evicted(len(gone), sum(entry.arena.slot_bytes for entry in gone), len(entries) - len(gone))


def _leading(arena: Arena, keys: list[bytes]) -> list[Entry]:
    run: list[Entry] = []
    for entry in map(arena.index.get, keys):
        if entry is None:
            break
        run.append(entry)
    return run


def _refuse_below_partial(arena: Arena, parent: Entry | None) -> None:
    if parent is not None and parent.key in arena.partial:
        raise BadRequest(
            "the page before is only partly filled, so nothing can hang from it: append to the branch it is of"
        )


def _refuse_repeats(keys: list[bytes], plan: Plan) -> None:
    if len(set(map(keys.__getitem__, plan.positions))) < len(plan.positions):
        raise BadRequest("the same key stands twice in one reservation: page keys of a chain differ")
