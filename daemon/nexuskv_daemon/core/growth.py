"""An append: pages to be written below a branch's tip, and the branch's new end when they are committed.

Owns what becomes of a tip that is only partly filled. Committed bytes never change, so the first new page holds the
tail's tokens too, and there are three ways to get them there:

    the page is resident already      another branch appended the same tokens: it is shared, nothing is written
    only this branch ends at the tip  the tip's slot passes to the new page, tail and all; nothing is copied
    anybody else reads or ends there  the new page has a slot of its own, into which the appender copies the tail

A slot passes only from a branch that no other session could look at: then, whoever dies, nobody misses the old tip.
"""

from __future__ import annotations

from typing import NamedTuple

from nexuskv.errors import BadRequest, BranchMoved, Busy, NotReserved
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.branch import Branch, End
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.lineage import Lineage
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.store import Store

TOKEN_BYTES = 4


class Extension(NamedTuple):
    """What an append asks for: keys from the page that takes the tail over on, all tokens added, and the new tail."""

    keys: list[bytes]
    tokens: int
    tail: bytes


class Growth(Reservation):
    """The pages of one append. It is committed as a whole, and then the branch ends at the last of its keys."""

    def __init__(self, number: int, lineage: Lineage, branch: Branch, owner: int, asked: Extension) -> None:
        super().__init__(number, branch.arena)
        self.branch = branch
        self.owner = owner
        self.source: Entry | None = None
        """The page from which the tail is to be copied."""
        self._lineage = lineage
        self._target = asked.keys[-1]
        self._tokens = branch.end.tokens + asked.tokens
        self._tail = asked.tail
        self._former: Entry | None = None
        """The tip whose slot the first page has got."""
        self._resident: Entry | None = None

    def commit(self, places: list[int], *, rest: bool) -> int:
        """Publishes all pages, and moves the branch. Raises NotReserved for some pages alone."""
        if not rest:
            raise NotReserved("the pages of an append are committed as a whole, when all are written")
        tip = self._resident or self.entries[-1]
        self.arena.hold(tip)  # before it is published, so that it is in no eviction queue
        super().commit(places, rest=True)
        self._end_former()
        self._close()
        self._lineage.move(self.branch, End(tip, self._tokens, self._tail))
        return self.committed

    def abort(self) -> None:
        """The branch stays as it was; if nobody holds it any more, what was its tip goes with the rest."""
        former = self._former
        fresh = self.entries.pop(0) if former is not None and self.branch.held else None
        super().abort()
        if former is not None and fresh is not None:
            self.arena.shrink_back(fresh, former)
            self.arena.hold(former)
            self.branch.end = self.branch.end._replace(tip=former)
        else:
            self._end_former()
        self.arena.forget_partial(self._target)
        self._close()

    def copy_from(self, tip: Entry | None) -> None:
        """The appender copies the tail out of `tip`, which the branch holds until the commit."""
        self.source = tip
        self.branch.copies += 1
        self.arena.counters.copied += 1

    def stay_with(self, tip: Entry) -> None:
        """All is resident already: that must last until the commit."""
        self._resident = tip
        self.arena.hold(tip)

    def take_slot(self, tip: Entry, fresh: Entry) -> bool:
        """The slot of the branch's tip passes to `fresh`. False when somebody reads it."""
        if not self.arena.regrow(tip, fresh, self.owner):
            return False
        self._former = tip
        self.entries.append(fresh)
        self.branch.end = self.branch.end._replace(tip=None)
        return True

    def _end_former(self) -> None:
        if self._former is not None:
            self.arena.vacated.remove(self._former.key)
            self.arena.forget_partial(self._former.key)
            self._former = None

    def _close(self) -> None:
        self.branch.growth = None
        if self._resident is not None:
            self.arena.let_go(self._resident)


def grow(
    store: Store, branch: Branch, believed: bytes, asked: Extension, now: float, owner: int
) -> Growth | None:
    """Opens an append of session `owner`; None while a segment is being made: ask again when it is there.

    `believed` is the key of the tip as the session knows it. Raises Busy, BranchMoved, BadRequest, ArenaFull.
    """
    _refuse(branch, believed, asked)
    growth = Growth(store.reservations.next(), store.branches, branch, owner, asked)
    if asked.tail:
        branch.arena.partial.setdefault(asked.keys[-1], len(asked.tail) // TOKEN_BYTES)
    opened = False
    try:
        opened = _open(store, growth, asked.keys, now)
    finally:
        if not opened:
            growth.abort()
    if not opened:
        return None
    branch.growth = growth
    return growth


def _open(store: Store, growth: Growth, keys: list[bytes], now: float) -> bool:
    """Gets slots for all absent pages; False while a segment is being made."""
    arena, end = growth.arena, growth.branch.end
    before = end.tip
    to_copy = False
    if end.tip is not None and end.tail:
        before = end.tip.parent
        to_copy = _absent(arena, keys[:1]) > 0
        if to_copy and _exclusive(growth.branch, end.tip):
            if not store.make_room(arena, _absent(arena, keys[1:]), now):
                return False
            fresh = Entry(arena, keys[0], end.tip.handle, before, store.touch())
            if growth.take_slot(end.tip, fresh):
                before, keys, to_copy = fresh, keys[1:], False
    if not _reserve(store, growth, keys, before, now):
        return False
    if to_copy:
        growth.copy_from(end.tip)
    if keys and keys[-1] in arena.index:
        growth.stay_with(arena.index[keys[-1]])
    return True


def _reserve(store: Store, growth: Growth, keys: list[bytes], before: Entry | None, now: float) -> bool:
    parent = before.key if before is not None else b""
    granted = store.reserve(growth.arena, keys, parent, growth, now, growth.owner)
    if granted is not None and granted[1].busy:
        raise Busy(
            "the same tokens are just being appended to another branch: append when that is done, to share them"
        )
    return granted is not None


def _absent(arena: Arena, keys: list[bytes]) -> int:
    """How many of `keys` are neither resident nor being written."""
    return sum(1 for key in keys if not (key in arena.index or key in arena.writing or key in arena.vacated))


def _exclusive(branch: Branch, tip: Entry) -> bool:
    """Whether nobody but one session can look at this branch, and no other branch or hit at its tip."""
    alone = branch.holders == 1 and not branch.published
    return alone and branch.arena.held[tip] == 1 and tip.pins == 1 and not tip.children


def _refuse(branch: Branch, believed: bytes, asked: Extension) -> None:
    if branch.growth is not None:
        raise Busy(
            f"an append to branch {branch.number} is open: commit or abort it first, or fork and append there"
        )
    tip, _, tail = branch.end
    if believed != (tip.key if tip is not None else b""):
        raise BranchMoved(
            f"branch {branch.number} was appended to by somebody else: refresh it, then append anew"
        )
    page_tokens = branch.arena.descriptor.page_tokens
    there = len(tail) // TOKEN_BYTES
    pages, rest = divmod(there + asked.tokens, page_tokens)
    if len(asked.tail) != rest * TOKEN_BYTES or len(asked.keys) != pages + bool(rest) or not asked.tokens:
        raise BadRequest(
            f"{asked.tokens} tokens after a tail of {there} make {pages + bool(rest)} pages of {page_tokens} and a "
            f"tail of {rest}, not {len(asked.keys)} keys and {len(asked.tail)} bytes of tail"
        )
