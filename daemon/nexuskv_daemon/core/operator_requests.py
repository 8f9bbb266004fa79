"""What the requests of whoever looks after the daemon do: figures, eviction, its end.

Owns what a session may see: the daemon's operator everything, anybody else the arenas of its own tenant.
"""

from nexuskv.errors import NotPermitted, UnknownDescriptor
from nexuskv.protocol import messages as m
from nexuskv.protocol.stats import ArenaStats, TenantStats
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.requests import Answer, Handler, Host
from nexuskv_daemon.core.session import Session

NAMED = 20
"""Descriptors that a refusal names at most."""


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


def _drain(host: Host, session: Session, request: m.Drain, now: float) -> Answer:
    if not session.operator:
        raise NotPermitted("only root and the daemon's own user may stop it")
    return Answer(m.Done(request.id), stop=True)


TABLE: dict[type[m.Message], Handler] = {
    m.GetStats: _stats,
    m.Evict: _evict,
    m.Drain: _drain,
}
