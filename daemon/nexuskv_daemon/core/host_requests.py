"""What the requests that concern other hosts do, from clients and from the daemon's own peer half.

Owns which arena a request is about. What clients ask goes abroad, and is answered when it was performed there; what
the peer half asks is in `peering.py`.
"""

from typing import get_args

from nexuskv.errors import UnknownDescriptor
from nexuskv.protocol import hosts as h
from nexuskv.protocol import messages as m
from nexuskv.protocol.offers import GetOffers
from nexuskv_daemon.core import peering
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.effects import Abroad
from nexuskv_daemon.core.requests import Answer, Handler, Host
from nexuskv_daemon.core.session import Session


def _fetch(host: Host, session: Session, request: h.Fetch | GetOffers, now: float) -> Answer:
    arena = host.store.arena_of(session.tenant, request.digest)
    if arena is None:
        raise UnknownDescriptor("no descriptor with this digest is registered: open it before fetching")
    return _abroad(session, arena, request)


def _push(host: Host, session: Session, request: h.Push, now: float) -> Answer:
    arena = host.store.home(session.tenant, request.keys[0]) if request.keys else None
    if arena is None:
        return Answer(h.Pushed(request.id, 0, "the first of these pages is not resident here"))
    return _abroad(session, arena, request)


def _peers(host: Host, session: Session, request: h.GetPeers, now: float) -> Answer:
    return _abroad(session, None, request)


def _abroad(
    session: Session, arena: Arena | None, request: h.Fetch | h.Push | h.GetPeers | GetOffers
) -> Answer:
    return Answer(m.Done(0), abroad=Abroad(session.number, session.tenant, arena, request))


def _peer(host: Host, session: Session, request: peering.Asked, now: float) -> Answer:
    reply, segments = peering.perform(host.store, session, request)
    return Answer(reply or m.Done(0), segments=segments)


TABLE: dict[type[m.Message], Handler] = {
    h.Fetch: _fetch,
    GetOffers: _fetch,
    h.Push: _push,
    h.GetPeers: _peers,
    **dict.fromkeys(get_args(peering.Asked), _peer),
}
