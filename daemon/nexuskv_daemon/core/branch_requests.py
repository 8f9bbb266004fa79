"""What the requests about branches do to the lineage and the session, and their replies.

Owns who may do what: a session works with the branches that it holds, and attaches to published ones of its tenant.
Whoever has an append to a branch open settles that before anything else is done to the branch.
"""

from itertools import islice

from nexuskv.errors import BadRequest, Busy, ParentMissing, UnknownBranch
from nexuskv.protocol import branches as b
from nexuskv.protocol import messages as m
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.branch import Branch, End
from nexuskv_daemon.core.growth import Extension, grow
from nexuskv_daemon.core.lineage import ancestry
from nexuskv_daemon.core.requests import Answer, Handler, Host
from nexuskv_daemon.core.session import Session

MAX_TOKENS = 2**63 - 1


def _open(host: Host, session: Session, request: b.OpenBranch, now: float) -> Answer:
    arena = session.arena(request.arena)
    end = _end(arena, request)
    session.branches.refuse_beyond(1)
    branch = host.store.branches.open(arena, request.root, end)
    session.branches.add(branch)
    return Answer(_branched(request.id, branch))


def _end(arena: Arena, request: b.OpenBranch) -> End:
    if not arena.chained:
        raise BadRequest(
            f"descriptor {arena.descriptor.descriptor_id!r} has no branches: only where every page before a position "
            "is needed (reuse rule ALL_PAGES) do pages make a chain to branch off"
        )
    tokens = request.pages * arena.descriptor.page_tokens
    if tokens > MAX_TOKENS or bool(request.tip) != bool(request.pages):
        raise BadRequest(f"a branch of {request.pages} pages with a tip of {len(request.tip)} bytes")
    if not request.tip:
        return End(None, 0, b"")
    tip = arena.index.get(request.tip)
    if tip is None:
        raise ParentMissing(
            "the last page of this context is not resident: match it first, and keep the hit open"
        )
    if tip.key in arena.partial:
        raise BadRequest("the last page is only partly filled: fork the branch that it is of")
    return End(tip, tokens, b"")


def _attach(host: Host, session: Session, request: b.AttachBranch, now: float) -> Answer:
    arena = session.arena(request.arena)
    branch = host.store.branches.find(request.branch, session.tenant)
    if not branch.published and branch not in session.branches:
        raise UnknownBranch(
            f"branch {request.branch} is not published, so only the connection that it was made in may use it"
        )
    if branch.arena is not arena or branch.root != request.root:
        raise BadRequest(
            f"branch {request.branch} is of descriptor {branch.arena.descriptor.descriptor_id!r} or of another model "
            "or salt: open the cache that it was made in"
        )
    _refuse_unsettled(session, branch)
    session.branches.refuse_beyond(1)
    host.store.branches.hold(branch)
    session.branches.add(branch)
    return Answer(_branched(request.id, branch))


def _fork(host: Host, session: Session, request: b.Fork, now: float) -> Answer:
    parent = _settled(host, session, request.branch)
    session.branches.refuse_beyond(request.count)
    lineage = host.store.branches
    first = lineage.fork(parent, request.count)
    for number in range(first, first + request.count):
        session.branches.add(lineage.branches[number])
    _, tokens, tail = parent.end
    forked = b.Forked(request.id, first, request.count, parent.depth + 1, tokens, _tip(parent), tail)
    return Answer(forked)


def _append(host: Host, session: Session, request: b.Append, now: float) -> Answer | None:
    branch = _held(host, session, request.branch)
    session.arena(branch.arena.number)
    asked = Extension(request.keys, request.tokens, request.tail)
    growth = grow(host.store, branch, request.tip, asked, now, session.number)
    if growth is None:
        return None
    session.reservations[growth.number] = growth
    host.store.room.grow_ahead(branch.arena, now)
    handles = [entry.handle for entry in growth.entries]
    sources = [growth.source.handle] if growth.source is not None else []
    memory = host.store.memory
    segments = session.introduce(handles, memory, writable=True)
    segments += session.introduce([*handles, *sources], memory, writable=False)
    places = {key: position for position, key in enumerate(request.keys)}
    positions = [places[entry.key] for entry in growth.entries]
    source = sources[0] if sources else b.NO_HANDLE
    return Answer(b.Appending(request.id, growth.number, positions, handles, source), segments=segments)


def _publish(host: Host, session: Session, request: b.PublishBranch, now: float) -> Answer:
    branch = _settled(host, session, request.branch)
    if request.published:
        host.store.branches.publish(branch)
    else:
        host.store.branches.withdraw(branch)
    return Answer(m.Done(request.id))


def _drop(host: Host, session: Session, request: b.DropBranches, now: float) -> Answer:
    for branch in [_settled(host, session, number) for number in request.branches]:
        session.branches.remove(branch)
        host.store.branches.release(branch)
    return Answer(m.Done(request.id))


def _trace(host: Host, session: Session, request: b.TraceBranch, now: float) -> Answer:
    branch = host.store.branches.find(request.branch, session.tenant)
    shown = list(islice(ancestry(branch), min(request.rows, b.BRANCHES_A_REPLY)))
    above = shown[-1].parent
    rows = [_row(each) for each in shown]
    return Answer(b.Branches(request.id, rows, above.number if above is not None else 0))


def _list(host: Host, session: Session, request: b.ListBranches, now: float) -> Answer:
    arena = session.arena(request.arena)
    found = host.store.branches.published(arena, request.root, request.first, b.BRANCHES_A_REPLY + 1)
    shown, more = found[: b.BRANCHES_A_REPLY], found[b.BRANCHES_A_REPLY :]
    return Answer(b.Branches(request.id, [_row(each) for each in shown], more[0].number if more else 0))


def _path(host: Host, session: Session, request: b.GetPath, now: float) -> Answer:
    branch = _held(host, session, request.branch)
    entry = branch.end.tip
    if request.below:
        entry = branch.arena.index.get(request.below)
        if entry is None:
            raise BadRequest("the page to go on from is not resident: ask for the path from its tip")
        entry = entry.parent
    keys: list[bytes] = []
    while entry is not None and len(keys) < m.MAX_KEYS:
        keys.append(entry.key)
        entry = entry.parent
    return Answer(b.Path(request.id, keys, entry is not None, branch.end.tokens, branch.end.tail))


def _held(host: Host, session: Session, number: int) -> Branch:
    branch = host.store.branches.find(number, session.tenant)
    session.branches.require(branch)
    return branch


def _settled(host: Host, session: Session, number: int) -> Branch:
    branch = _held(host, session, number)
    _refuse_unsettled(session, branch)
    return branch


def _refuse_unsettled(session: Session, branch: Branch) -> None:
    if branch.growth is not None and branch.growth.owner == session.number:
        raise Busy(f"an append to branch {branch.number} is open in this session: commit or abort it first")


def _tip(branch: Branch) -> bytes:
    tip = branch.end.tip
    return tip.key if tip is not None else b""


def _branched(request_id: int, branch: Branch) -> b.Branched:
    return b.Branched(request_id, _row(branch), _tip(branch), branch.end.tail)


def _row(branch: Branch) -> b.BranchRow:
    return b.BranchRow(
        branch=branch.number,
        parent_entry_id=branch.parent.number if branch.parent is not None else 0,
        branch_depth=branch.depth,
        cow_ref_cnt=branch.references,
        tokens=branch.end.tokens,
        copies=branch.copies,
        published=branch.published,
    )


TABLE: dict[type[m.Message], Handler] = {
    b.OpenBranch: _open,
    b.AttachBranch: _attach,
    b.Fork: _fork,
    b.Append: _append,
    b.PublishBranch: _publish,
    b.DropBranches: _drop,
    b.TraceBranch: _trace,
    b.ListBranches: _list,
    b.GetPath: _path,
}
