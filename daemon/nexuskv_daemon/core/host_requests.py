"""What the requests that concern other hosts do, from clients and from the daemon's own peer half.

Owns which arena a request is about. What clients ask goes abroad, and is answered when it was performed there; what
the peer half asks is in `peering.py`.
"""

from typing import get_args

from nexuskv.contract import Descriptor
from nexuskv.contract.groups import members
from nexuskv.errors import BadRequest, UnknownDescriptor
from nexuskv.protocol import hosts as h
from nexuskv.protocol import messages as m
from nexuskv.protocol.fetches import FetchBlocks, FetchGroup
from nexuskv.protocol.offers import GetOffers
from nexuskv_daemon.core import peering
from nexuskv_daemon.core.effects import Abroad
from nexuskv_daemon.core.requests import Answer, Handler, Host
from nexuskv_daemon.core.session import Session


def _fetch(host: Host, session: Session, request: h.Fetch | FetchBlocks | GetOffers, now: float) -> Answer:
    return _abroad(session, [_opened(host, session, request.descriptor)], request)


def _fetch_group(host: Host, session: Session, request: FetchGroup, now: float) -> Answer:
    descriptors = [_opened(host, session, member.descriptor) for member in request.members]
    pages = [len(member.keys) // request.boundaries for member in request.members]
    if sum(len(member.keys) for member in request.members) > m.MAX_KEYS:
        raise BadRequest(f"more than {m.MAX_KEYS} keys in one message: fetch fewer boundaries at a time")
    if pages != [each.pages for each in members(descriptors)] or any(
        len(member.keys) % request.boundaries for member in request.members
    ):
        raise BadRequest("the keys of each member are those of all boundaries: use group.keys()")
    return _abroad(session, descriptors, request)


def _opened(host: Host, session: Session, descriptor_id: str) -> Descriptor:
    """By id and not by digest: others may have declared other flags for the same pages."""
    descriptor = host.store.described(session.tenant, descriptor_id)
    if descriptor is None:
        raise UnknownDescriptor("no descriptor with this id is registered: open it before fetching")
    return descriptor


def _push(host: Host, session: Session, request: h.Push, now: float) -> Answer:
    arena = host.store.home(session.tenant, request.keys[0]) if request.keys else None
    if arena is None:
        return Answer(h.Pushed(request.id, 0, "the first of these pages is not resident here"))
    return _abroad(session, [arena.descriptor], request)


def _peers(host: Host, session: Session, request: h.GetPeers, now: float) -> Answer:
    return _abroad(session, [], request)


def _abroad(
    session: Session,
    descriptors: list[Descriptor],
    request: h.Fetch | FetchBlocks | FetchGroup | GetOffers | h.Push | h.GetPeers,
) -> Answer:
    return Answer(m.Done(0), abroad=Abroad(session.number, session.tenant, descriptors, request))


def _peer(host: Host, session: Session, request: peering.Asked, now: float) -> Answer:
    reply, segments = peering.perform(host.store, session, request)
    return Answer(reply or m.Done(0), segments=segments)


TABLE: dict[type[m.Message], Handler] = {
    h.Fetch: _fetch,
    FetchBlocks: _fetch,
    FetchGroup: _fetch_group,
    GetOffers: _fetch,
    h.Push: _push,
    h.GetPeers: _peers,
    **dict.fromkeys(get_args(peering.Asked), _peer),
}
