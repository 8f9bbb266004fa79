"""What the requests for parts of what other hosts have do: blocks of pages, and boundaries of groups.

Owns what is refused before they go abroad. They are answered when they were performed there.
"""

from nexuskv.contract.groups import members
from nexuskv.errors import BadRequest, UnknownDescriptor
from nexuskv.protocol import messages as m
from nexuskv.protocol.fetches import FetchBlocks, FetchGroup
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.effects import Abroad
from nexuskv_daemon.core.requests import Answer, Handler, Host
from nexuskv_daemon.core.session import Session


def _fetch_blocks(host: Host, session: Session, request: FetchBlocks, now: float) -> Answer:
    return _abroad(session, _opened(host, session, request.digest), request)


def _fetch_group(host: Host, session: Session, request: FetchGroup, now: float) -> Answer:
    arenas = [_opened(host, session, member.digest) for member in request.members]
    lengths = [len(member.keys) for member in request.members]
    if sum(lengths) > m.MAX_KEYS:
        raise BadRequest(f"more than {m.MAX_KEYS} keys in one message: fetch fewer boundaries at a time")
    group = members([arena.descriptor for arena in arenas])
    if lengths != [each.pages * request.boundaries for each in group]:
        raise BadRequest("the keys of each member are those of all boundaries: use group.keys()")
    return _abroad(session, arenas[0], request)


def _opened(host: Host, session: Session, digest: bytes) -> Arena:
    arena = host.store.arena_of(session.tenant, digest)
    if arena is None:
        raise UnknownDescriptor("no descriptor with this digest is registered: open it before fetching")
    return arena


def _abroad(session: Session, arena: Arena, request: FetchBlocks | FetchGroup) -> Answer:
    return Answer(m.Done(0), abroad=Abroad(session.number, session.tenant, arena, request))


TABLE: dict[type[m.Message], Handler] = {FetchBlocks: _fetch_blocks, FetchGroup: _fetch_group}
