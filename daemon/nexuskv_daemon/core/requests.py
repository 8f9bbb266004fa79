"""What each request does to the store and the session, and its reply.

Owns one small function a request, and the table that finds it; those about branches are in `branch_requests.py`.
Refusals are raised as errors; the engine sends them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

import msgspec

from nexuskv import contract
from nexuskv.contract.groups import members
from nexuskv.errors import BadRequest, NotPermitted, NotReserved, UnknownDescriptor, VersionMismatch
from nexuskv.protocol import messages as m
from nexuskv.protocol.fetches import FetchBlocks, FetchGroup
from nexuskv.protocol.messages import SLOT_BITS
from nexuskv.protocol.stats import ArenaStats, TenantStats
from nexuskv_daemon.core import groups, lookup, peering
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.effects import Abroad
from nexuskv_daemon.core.groups import GroupReservation
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.session import Session
from nexuskv_daemon.core.store import Store

R = TypeVar("R", Reservation, GroupReservation)
NAMED = 20
"""Descriptors that a refusal names at most."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a daemon says of itself; `boot_epoch` differs at every start, `started` is in the engine's seconds."""

    instance: str
    release: str
    boot_epoch: int
    started: float


@dataclass(frozen=True, slots=True)
class Host:
    """What requests act on: the store, who the daemon is, and all sessions by number."""

    store: Store
    identity: Identity
    sessions: dict[int, Session] = field(default_factory=dict)


class Answer(msgspec.Struct, gc=False):
    """A reply, what must arrive before it, and whether it ends the session or the daemon.

    What other hosts are needed for has its reply (id 0 here, so none is sent) when `abroad` was performed.
    """

    reply: m.Message
    segments: list[m.Segment] = []
    last: bool = False
    stop: bool = False
    abroad: Abroad | None = None


def _peer(host: Host, session: Session, request: peering.Asked, now: float) -> Answer:
    reply, segments = peering.perform(host.store, session, request)
    return Answer(reply or m.Done(0), segments=segments)


def _hello(host: Host, session: Session, request: m.Hello, now: float) -> Answer:
    if session.greeted:
        raise BadRequest("a session begins with one hello: this one had its own")
    if request.version != m.PROTOCOL_VERSION:
        error = VersionMismatch(
            f"this daemon speaks protocol version {m.PROTOCOL_VERSION}, the client {request.version}: "
            f"install the same release on both sides (the daemon is nexuskv {host.identity.release})"
        )
        return Answer(m.Refused(request.id, error.code, str(error)), last=True)
    session.greeted = True
    who = host.identity
    return Answer(
        m.Welcome(request.id, m.PROTOCOL_VERSION, who.boot_epoch, who.instance, session.tenant, who.release)
    )


def _register(host: Host, session: Session, request: m.Register, now: float) -> Answer:
    arena = host.store.register(session.tenant, contract.decode(request.descriptor))
    session.arenas[arena.number] = arena
    return Answer(m.Registered(request.id, arena.number))


def _attach(host: Host, session: Session, request: m.Attach, now: float) -> Answer:
    if session.attached:
        raise BadRequest("this session is attached already: its descriptors came with the first answer")
    host.store.publication(session.tenant).attach(session.number)
    session.attached = True
    return Answer(m.Attached(request.id, session.number))


def _lookup(host: Host, session: Session, request: m.Lookup, now: float) -> Answer:
    states, others = lookup.states(host.store, session.arena(request.arena), request.keys)
    return Answer(m.Found(request.id, states, others))


def _measure(host: Host, session: Session, request: m.Measure, now: float) -> Answer:
    found = lookup.boundary(session.arena(request.arena), request.keys)
    return Answer(m.Measured(request.id, found.start, found.stop))


def _pin(host: Host, session: Session, request: m.Pin, now: float) -> Answer:
    for hit in request.released:
        session.release(hit)
    arena = session.arena(request.arena)
    start, entries = host.store.pin(arena, request.keys, whole=request.whole)
    handles = [entry.handle for entry in entries]
    segments = session.introduce(handles, host.store.memory, writable=False)
    lacking = arena.lacking(entries[-1]) if entries else 0
    return Answer(
        m.Pinned(request.id, session.hold(arena, entries), start, handles, lacking), segments=segments
    )


def _reserve(host: Host, session: Session, request: m.Reserve, now: float) -> Answer | None:
    arena = session.arena(request.arena)
    older = _older(session, request.reservation, Reservation)
    if older is not None and older.arena is not arena:
        raise NotReserved(
            f"reservation {older.number} holds pages of another arena: reserve anew in this one"
        )
    granted = host.store.reserve(arena, request.keys, request.parent, older, now, session.number)
    if granted is None:
        return None
    reservation, plan = granted
    if not reservation.entries:
        return Answer(m.Reserved(request.id, 0, [], [], plan.busy))
    session.reservations[reservation.number] = reservation
    host.store.room.grow_ahead(arena, now)
    handles = [
        entry.handle for entry in reservation.entries[len(reservation.entries) - len(plan.positions) :]
    ]
    segments = session.introduce(handles, host.store.memory, writable=True)
    return Answer(
        m.Reserved(request.id, reservation.number, plan.positions, handles, plan.busy), segments=segments
    )


def _older(session: Session, number: int, kind: type[R]) -> R | None:
    """The reservation to add to, if any."""
    older = session.reservation(number) if number else None
    if older is None or isinstance(older, kind):
        return older
    raise NotReserved(f"reservation {number} is of another kind, a group's or a descriptor's: reserve anew")


def _reserve_group(host: Host, session: Session, request: m.ReserveGroup, now: float) -> Answer | None:
    older = _older(session, request.reservation, GroupReservation)
    parts = _parts(session, request)
    granted = groups.reserve(host.store, parts, request.boundaries, older, now, session.number)
    if granted is None:
        return None
    reservation = granted.reservation
    if not reservation.boundaries:
        return Answer(m.ReservedGroup(request.id, 0, [], granted.positions, granted.handles, granted.busy))
    session.reservations[reservation.number] = reservation
    for part in parts:
        host.store.room.grow_ahead(part.arena, now)
    handles = [handle for each in granted.handles for handle in each]
    segments = session.introduce(handles, host.store.memory, writable=True)
    segments += session.introduce(handles, host.store.memory, writable=False)
    reply = m.ReservedGroup(
        request.id,
        reservation.number,
        granted.boundaries,
        granted.positions,
        granted.handles,
        granted.busy,
    )
    return Answer(reply, segments=segments)


def _parts(session: Session, request: m.ReserveGroup) -> list[groups.Part]:
    arenas = [session.arena(part.arena) for part in request.parts]
    if len(set(arenas)) < len(arenas):
        raise BadRequest("two members of the group have one arena: their pages would have the same keys")
    if sum(len(part.keys) for part in request.parts) > m.MAX_KEYS:
        raise BadRequest(f"more than {m.MAX_KEYS} keys in one message: reserve fewer boundaries at a time")
    if any(not part.keys or len(part.keys) % request.boundaries for part in request.parts):
        raise BadRequest("every member has as many keys for each boundary, and one at least")
    return [
        groups.Part(arena, part.keys, part.parent, len(part.keys) // request.boundaries)
        for arena, part in zip(arenas, request.parts, strict=True)
    ]


def _commit(host: Host, session: Session, request: m.Commit, now: float) -> Answer:
    reservation = session.reservation(request.reservation)
    committed = reservation.commit(request.pages, rest=request.rest)
    if request.rest:
        del session.reservations[request.reservation]
    return Answer(m.Committed(request.id, committed))


def _abort(host: Host, session: Session, request: m.Abort, now: float) -> Answer:
    session.reservation(request.reservation).abort()
    del session.reservations[request.reservation]
    return Answer(m.Done(request.id))


def _release(host: Host, session: Session, request: m.Release, now: float) -> Answer:
    for hit in request.hits:
        session.release(hit)
    return Answer(m.Done(request.id))


def _stats(host: Host, session: Session, request: m.GetStats, now: float) -> Answer:
    who, memory = host.identity, host.store.memory
    visible = [arena for arena in _visible(host, session) if arena.number >= request.first]
    shown, more = visible[: m.ARENAS_A_REPLY], visible[m.ARENAS_A_REPLY :]
    tenants = sorted({arena.tenant for arena in shown})
    return Answer(
        m.Stats(
            id=request.id,
            instance=who.instance,
            release=who.release,
            boot_epoch=who.boot_epoch,
            uptime=now - who.started,
            memory_budget=memory.budget,
            memory_used=memory.used,
            sessions=len(host.sessions),
            arenas=[_arena_stats(host, arena) for arena in shown],
            tenants=[_tenant_stats(tenant, [a for a in shown if a.tenant == tenant]) for tenant in tenants],
            next=more[0].number if more else 0,
        )
    )


def _tenant_stats(tenant: str, arenas: list[Arena]) -> TenantStats:
    usage = arenas[0].publication.usage()
    return TenantStats(
        tenant=tenant,
        hits=usage.hits + sum(arena.counters.hits for arena in arenas),
        misses=usage.misses + sum(arena.counters.misses for arena in arenas),
        pinned=usage.pinned + sum(arena.pinned for arena in arenas),
        entries=usage.entries,
        index_entries=usage.index_entries,
        pins_full=usage.pins_full,
    )


def _arena_stats(host: Host, arena: Arena) -> ArenaStats:
    arena.reclaim()  # readers let go of pages without saying so
    count = arena.counters
    return ArenaStats(
        descriptor_id=arena.descriptor.descriptor_id,
        tenant=arena.tenant,
        segments=len(arena.pool.segments),
        bytes=host.store.memory.bytes_of(arena),
        page_bytes=arena.page_bytes,
        slot_bytes=arena.slot_bytes,
        slots=arena.pool.capacity,
        free=len(arena.pool),
        resident=len(arena.index),
        writing=len(arena.writing),
        retiring=len(arena.retiring),
        committed=count.committed,
        aborted=count.aborted,
        evicted=count.evicted,
        branches=sum(arena.held.values()),
        branch_tips=len(arena.held),
        copied=count.copied,
    )


def _map(host: Host, session: Session, request: m.Map, now: float) -> Answer:
    ready = host.store.memory.ready
    there = [n for n in request.segments if n in ready and _may_map(session, ready[n].arena)]
    segments = session.introduce([n << SLOT_BITS for n in there], host.store.memory, writable=False)
    return Answer(m.Done(request.id), segments=segments)


def _may_map(session: Session, arena: Arena) -> bool:
    """An engine that registers nothing reads by key alone; one that does is given what it can make sense of."""
    return arena.tenant == session.tenant and (not session.arenas or arena.number in session.arenas)


def _drain(host: Host, session: Session, request: m.Drain, now: float) -> Answer:
    if not session.operator:
        raise NotPermitted("only root and the daemon's own user may stop it")
    return Answer(m.Done(request.id), stop=True)


def _evict(host: Host, session: Session, request: m.Evict, now: float) -> Answer:
    pages = nbytes = retiring = 0
    for arena in _chosen(host, session, request.descriptor_id):
        wanted = request.nbytes - nbytes if request.nbytes else len(arena.index) * arena.slot_bytes
        store = host.store
        gone = store.evict_everything(arena) if request.everything else store.evict(arena, max(0, wanted))
        pages += gone.pages
        nbytes += gone.nbytes
        retiring += gone.retiring
    return Answer(m.Evicted(request.id, pages, nbytes, retiring))


def _fetch(host: Host, session: Session, request: m.Fetch | FetchBlocks, now: float) -> Answer:
    return _abroad(session, [_opened(host, session, request.digest)], request)


def _fetch_group(host: Host, session: Session, request: FetchGroup, now: float) -> Answer:
    arenas = [_opened(host, session, member.digest) for member in request.members]
    pages = [len(member.keys) // request.boundaries for member in request.members]
    if sum(len(member.keys) for member in request.members) > m.MAX_KEYS:
        raise BadRequest(f"more than {m.MAX_KEYS} keys in one message: fetch fewer boundaries at a time")
    if pages != [each.pages for each in members([arena.descriptor for arena in arenas])] or any(
        len(member.keys) % request.boundaries for member in request.members
    ):
        raise BadRequest("the keys of each member are those of all boundaries: use group.keys()")
    return _abroad(session, arenas, request)


def _opened(host: Host, session: Session, digest: bytes) -> Arena:
    arena = host.store.arena_of(session.tenant, digest)
    if arena is None:
        raise UnknownDescriptor("no descriptor with this digest is registered: open it before fetching")
    return arena


def _push(host: Host, session: Session, request: m.Push, now: float) -> Answer:
    arena = host.store.home(session.tenant, request.keys[0]) if request.keys else None
    if arena is None:
        return Answer(m.Pushed(request.id, 0, "the first of these pages is not resident here"))
    return _abroad(session, [arena], request)


def _peers(host: Host, session: Session, request: m.GetPeers, now: float) -> Answer:
    return _abroad(session, [], request)


def _abroad(
    session: Session,
    arenas: list[Arena],
    request: m.Fetch | FetchBlocks | FetchGroup | m.Push | m.GetPeers,
) -> Answer:
    return Answer(m.Done(0), abroad=Abroad(session.number, session.tenant, arenas, request))


def _visible(host: Host, session: Session) -> list[Arena]:
    return [a for a in host.store.arenas.values() if session.operator or a.tenant == session.tenant]


def _chosen(host: Host, session: Session, descriptor_id: str) -> list[Arena]:
    visible = _visible(host, session)
    chosen = [a for a in visible if descriptor_id in ("", a.descriptor.descriptor_id)]
    if descriptor_id and not chosen:
        known = sorted({a.descriptor.descriptor_id for a in visible})
        some = ", ".join(known[:NAMED]) + (f" and {len(known) - NAMED} more" if len(known) > NAMED else "")
        raise UnknownDescriptor(f"no arena of descriptor {descriptor_id!r}; there are: {some or 'none'}")
    return chosen


Handler = Callable[[Host, Session, Any, float], Answer | None]
"""Performs one kind of request, at a time in seconds; None when it must wait for a segment."""

TABLE: dict[type[m.Message], Handler] = {
    m.Hello: _hello,
    m.Register: _register,
    m.Lookup: _lookup,
    m.Measure: _measure,
    m.Pin: _pin,
    m.Reserve: _reserve,
    m.ReserveGroup: _reserve_group,
    m.Commit: _commit,
    m.Abort: _abort,
    m.Release: _release,
    m.GetStats: _stats,
    m.Evict: _evict,
    m.Attach: _attach,
    m.Map: _map,
    m.Drain: _drain,
    m.Fetch: _fetch,
    FetchBlocks: _fetch,
    FetchGroup: _fetch_group,
    m.Push: _push,
    m.GetPeers: _peers,
    **dict.fromkeys(get_args(peering.Asked), _peer),
}
