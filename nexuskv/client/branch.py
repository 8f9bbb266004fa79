"""A branch: a context that was forked off another one, and goes on by itself.

Owns what this process knows of one branch: its end, the keys of its pages, and in which session it is held. Pages are
read through ordinary hits. Not to be used by several threads at once.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar, overload

from nexuskv import contract
from nexuskv.client.append import Append
from nexuskv.client.hit import Hit
from nexuskv.client.lineage import BranchInfo, End, Origin, attached, end_of, opened, traced
from nexuskv.client.path import Path
from nexuskv.client.session import Session
from nexuskv.errors import Closed, Disconnected, LocalError, UnknownBranch
from nexuskv.protocol import branches as b
from nexuskv.protocol import messages as m

T = TypeVar("T")


class Branch:
    """One branch, held until `drop`, the end of its `with` or of this object; an unpublished one goes then.

    After a restart of the daemon, or in a forked child, the next call attaches anew: possible for published ones only.
    """

    __slots__ = (
        "__weakref__", "_end", "_grows_in_place", "_origin", "_path", "depth", "dropped", "id", "parent_id", "session",
    )  # fmt: skip

    def __init__(
        self,
        origin: Origin,
        session: Session,
        number: int,
        parent_id: int,
        depth: int,
        end: End,
        path: Path | None,
    ) -> None:
        """Takes over a hold of `session`. Without `path` the keys are asked for when they are needed."""
        self._origin = origin
        self.session = session
        self._end = end
        self._path = path
        self.dropped = False
        self._grows_in_place = False
        self.id = number
        self.parent_id = parent_id
        """0 for a branch that was not forked off another."""
        self.depth = depth

    @property
    def tokens(self) -> int:
        """Length of the context, as this process knows it."""
        return self._end.tokens

    def read(self) -> Hit:
        """Pins all pages of the branch for reading in place; close it, or use it in a `with`.

        `hit.tokens` tells how many tokens are valid. While an append grows the last page in place, that page is the
        append's, and not among these. Needs the daemon only where the keys are not known here. Raises UnknownBranch
        when pages are gone, which those of a branch that is held never are.
        """
        for _ in range(2):
            keys = self._known_path().keys()
            if self._grows_in_place:
                keys.pop()
            hit = self._origin.match(keys)
            if len(hit) == len(keys):
                return hit
            hit.close()
            self.refresh()
        raise UnknownBranch(f"pages of branch {self.id} are gone: it is not held any more, make it anew")

    @overload
    def fork(self) -> Branch: ...
    @overload
    def fork(self, count: int) -> list[Branch]: ...
    def fork(self, count: int | None = None) -> Branch | list[Branch]:
        """A child that begins as this branch is now, or `count` of them. Moves no page, however long the context is."""
        if count is None:
            return self._use(lambda session: self._fork_some(session, 1))[0]
        if not 1 <= count <= b.MAX_HELD:
            raise LocalError(
                f"count is {count}; fork 1 to {b.MAX_HELD} at once, as many as a session may hold"
            )
        return self._use(lambda session: self._fork_many(session, count))

    def append(self, token_ids: contract.TokenIds) -> Append:
        """Pages for more tokens below the tip; use it in a `with`.

        The first one has the tail of this branch in it. Raises LocalError for no tokens or too many, Busy when an
        append to this branch is open or another is just writing the same, BranchMoved when somebody else appended.
        """
        added = contract.token_bytes(token_ids)
        if not added:
            raise LocalError("token_ids is empty: append one token or more")
        return self._use(lambda session: self._append(session, added))

    def publish(self) -> None:
        """Lets the branch outlive whoever holds it, and the daemon: others may attach to it by its id."""
        self._use(lambda session: session.call(b.PublishBranch(session.number(), self.id), m.Done))

    def withdraw(self) -> None:
        """Undoes `publish`: the branch goes with its last holder."""
        self._use(
            lambda session: session.call(b.PublishBranch(session.number(), self.id, published=False), m.Done)
        )

    def refresh(self) -> None:
        """Takes in what others appended to this branch. Raises UnknownBranch."""
        self._use(self._load)

    def info(self) -> BranchInfo:
        """What the daemon knows of it now."""
        return self._use(lambda session: traced(session, self.id, 1))[0]

    @property
    def cow_ref_cnt(self) -> int:
        """How many children and holders it has, its publication included; asks the daemon."""
        return self.info().cow_ref_cnt

    def lineage(self) -> list[BranchInfo]:
        """This branch, its parent, and so on up to the root."""
        return self._use(lambda session: traced(session, self.id))

    def drop(self) -> None:
        """Lets go. What its children need stays. Idempotent. Raises Busy while an append is open."""
        drop_all([self])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def __del__(self) -> None:
        if not self.dropped and self.session.alive:
            self.session.orphan(b.DropBranches(0, [self.id]))

    def _use(self, action: Callable[[Session], T]) -> T:
        """Performs `action` where the branch is held, or can be held again. Raises Closed, UnknownBranch."""
        if self.dropped:
            raise Closed(f"branch {self.id} was dropped here")
        return self._origin.keeper.use(lambda session: action(self._here(session)))

    def _here(self, session: Session) -> Session:
        if session is not self.session:
            found = attached(session, self._origin, self.id)
            if found.tip != self._end.tip:
                self._path = None
            self._end = end_of(found)
            self.session = session
        return session

    def _known_path(self) -> Path:
        path = self._path
        return self._use(self._load) if path is None else path

    def _load(self, session: Session) -> Path:
        """Asks for all keys, the last page's first."""
        part = session.call(b.GetPath(session.number(), self.id), b.Path)
        tokens, tail, keys = part.tokens, part.tail, list(part.keys)
        while part.more:
            part = session.call(b.GetPath(session.number(), self.id, keys[-1]), b.Path)
            keys += part.keys
        self._end = End(keys[0] if keys else b"", tokens, tail)
        self._path = Path(keys[::-1])
        return self._path

    def _fork_many(self, session: Session, count: int) -> list[Branch]:
        children: list[Branch] = []
        try:
            for at in range(0, count, m.MAX_KEYS):
                children += self._fork_some(session, min(m.MAX_KEYS, count - at))
        except BaseException:
            with contextlib.suppress(Disconnected):
                drop_all(children)
            raise
        return children

    def _fork_some(self, session: Session, count: int) -> list[Branch]:
        forked = session.call(b.Fork(session.number(), self.id, count), b.Forked)
        end = End(forked.tip, forked.tokens, forked.tail)
        path = self._path if end == self._end else None
        numbers = range(forked.first, forked.first + count)
        made = (self._origin, session)
        return [
            Branch(*made, number, self.id, forked.depth, end, path.fork() if path is not None else None)
            for number in numbers
        ]

    def _append(self, session: Session, added: bytes) -> Append:
        path, end = self._known_path(), self._end
        before = path.last(1 if end.tail else 0) or self._origin.root
        keys, tail = contract.page_and_tail_keys(
            before, end.tail + added, self._origin.descriptor.page_tokens
        )
        if len(keys) > m.MAX_KEYS:
            raise LocalError(
                f"{len(keys)} pages in one append: {m.MAX_KEYS} is the most, append the rest after them"
            )
        longer = End(keys[-1], end.tokens + len(added) // 4, tail)

        def ended(committed: bool) -> None:
            self._grows_in_place = False
            if committed:
                path.extend(keys, replaces_last=bool(end.tail))
                self._path, self._end = path, longer

        append = Append(session, self._origin.descriptor, range(end.tokens, longer.tokens), ended)
        asked = b.Append(session.number(), self.id, end.tip, keys, longer.tokens - end.tokens, tail)
        self._grows_in_place = append.open(asked) and bool(end.tail)
        return append


def open_branch(origin: Origin, keys: list[bytes]) -> Branch:
    """A branch at the end of a resident chain of full pages. Raises ParentMissing, BadRequest."""

    def perform(session: Session) -> Branch:
        return _branch(origin, session, opened(session, origin, keys), Path(list(keys)))

    return origin.keeper.use(perform)


def attach_branch(origin: Origin, branch: int) -> Branch:
    """A published branch, from wherever it was made. Raises UnknownBranch, BadRequest."""
    return origin.keeper.use(
        lambda session: _branch(origin, session, attached(session, origin, branch), None)
    )


def drop_all(branches: Iterable[Branch]) -> None:
    """Lets go of branches, thousands with one message. Raises Busy when one has an append open here."""
    by_session: dict[Session, list[Branch]] = defaultdict(list)
    for branch in branches:
        if not branch.dropped:
            by_session[branch.session].append(branch)
    for session, theirs in by_session.items():
        for at in range(0, len(theirs), m.MAX_KEYS):
            part = theirs[at : at + m.MAX_KEYS]
            with contextlib.suppress(Disconnected):  # they went with the connection
                if session.alive:
                    request = b.DropBranches(session.number(), [branch.id for branch in part])
                    session.call(request, m.Done)
            for branch in part:
                branch.dropped = True


def _branch(origin: Origin, session: Session, found: b.Branched, path: Path | None) -> Branch:
    row = found.row
    return Branch(origin, session, row.branch, row.parent_entry_id, row.branch_depth, end_of(found), path)
