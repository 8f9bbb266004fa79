"""All branches of the host: who descends from whom, who holds what, and what leaves when nobody does.

Owns the reference counts and the holds on tips. A fork makes a record and counts one more hold on a page: it looks at
no page and at no ancestor, however long the context is. How a branch gets longer is in `growth.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest

from nexuskv.errors import BadRequest, UnknownBranch
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.branch import Branch, BranchLine, BranchLog, End, NoLog
from nexuskv_daemon.core.entries import Entry

MAX_BRANCHES = 1 << 20
"""Of one tenant, those included that are kept for their children's lineage; about 300 bytes each."""


class Lineage:
    """Branches by number, which count on from `first`: a random one, so that no number of an earlier daemon returns."""

    def __init__(self, first: int = 1, log: BranchLog | None = None, limit: int = MAX_BRANCHES) -> None:
        self.branches: dict[int, Branch] = {}
        self._next = first
        self._log = log or NoLog()
        self._limit = limit
        self._counts: Counter[str] = Counter()

    def find(self, number: int, tenant: str) -> Branch:
        """A branch of `tenant`. Raises UnknownBranch, in the same words for those of others."""
        branch = self.branches.get(number)
        if branch is None or branch.arena.tenant != tenant:
            raise UnknownBranch(
                f"branch {number} is not there: never made, dropped by all who held it, or gone with the connection or "
                "the daemon that it was made in; only published branches outlive those"
            )
        return branch

    def published(self, arena: Arena, root: bytes, first: int, most: int) -> list[Branch]:
        """Published branches of an arena and root, by number from `first` on, and no more than `most`."""
        found = (each for each in self.branches.values() if each.published and each.number >= first)
        ours = (each for each in found if each.arena is arena and each.root == root)
        return nsmallest(most, ours, key=lambda each: each.number)

    def open(self, arena: Arena, root: bytes, end: End) -> Branch:
        """A branch without a parent, held once. Raises BadRequest at the limit."""
        self._admit(arena.tenant, 1)
        return self._add(self._take_numbers(1), arena, root, None, end)

    def fork(self, parent: Branch, count: int) -> int:
        """`count` children of a held branch, each held once. Returns the first of their numbers, which are consecutive.

        Raises BadRequest at the limit.
        """
        self._admit(parent.arena.tenant, count)
        first = self._take_numbers(count)
        for number in range(first, first + count):
            self._add(number, parent.arena, parent.root, parent, parent.end)
        return first

    def hold(self, branch: Branch) -> None:
        """One more holder of a branch that is held already."""
        branch.holders += 1

    def release(self, branch: Branch, times: int = 1) -> None:
        """A holder lets go, of as many holds as it has."""
        branch.holders -= times
        self._settle(branch)

    def publish(self, branch: Branch) -> None:
        """It stays without a holder, also beyond this daemon. Raises ArenaFull when that cannot be written down."""
        if branch.published:
            return
        branch.published = True
        fresh = [branch, *_unnoted(branch.parent)]
        try:
            self._log.note([each.line() for each in fresh])
        except BaseException:
            branch.published = False
            raise
        for each in fresh:
            each.noted = True

    def withdraw(self, branch: Branch) -> None:
        """It stays only as long as somebody holds it."""
        if branch.published:
            branch.published = False
            self._log.amend([branch.line()], [])
            self._settle(branch)

    def move(self, branch: Branch, end: End) -> None:
        """A held branch ends elsewhere now. The hold on its new tip is the caller's gift; that on the old one goes."""
        old, branch.end = branch.end.tip, end
        if branch.published:
            self._log.amend([branch.line()], [])
        if old is not None:
            branch.arena.let_go(old)

    def restore(self, lines: Iterable[BranchLine], arenas: Mapping[int, Arena]) -> list[int]:
        """Branches of an earlier daemon, into an empty lineage. Returns published ones whose pages are lost."""
        found = {line.number: line for line in lines if line.arena in arenas}
        lost: list[int] = []
        for line in sorted(found.values(), key=lambda line: line.depth):
            arena = arenas[line.arena]
            tip = arena.index.get(line.tip)
            there = line.published and (tip is not None or not line.tip)
            branch = self._restored(line, arena, tip if there else None)
            branch.published = there
            if line.published and not there:
                lost.append(line.number)
        for branch in list(self.branches.values()):
            if branch.number in self.branches and not branch.references:
                self._remove(branch)
        return lost

    def lines(self) -> list[BranchLine]:
        """What there is to write down."""
        return [branch.line() for branch in self.branches.values() if branch.noted]

    def _restored(self, line: BranchLine, arena: Arena, tip: Entry | None) -> Branch:
        parent = self.branches.get(line.parent)
        branch = Branch(line.number, arena, line.root, parent, line.depth, End(tip, line.tokens, line.tail))
        branch.copies = line.copies
        branch.noted = True
        self._enter(branch)
        return branch

    def _admit(self, tenant: str, count: int) -> None:
        there = self._counts[tenant]
        if there + count > self._limit:
            raise BadRequest(
                f"{count} more branches: this tenant has {there} of at most {self._limit}, those included that are "
                "kept because they have children; drop some"
            )

    def _take_numbers(self, count: int) -> int:
        """The first of `count` numbers that no branch bears."""
        while any(number in self.branches for number in range(self._next, self._next + count)):
            self._next += count
        self._next += count
        return self._next - count

    def _add(self, number: int, arena: Arena, root: bytes, parent: Branch | None, end: End) -> Branch:
        branch = Branch(number, arena, root, parent, parent.depth + 1 if parent is not None else 0, end)
        branch.holders = 1
        self._enter(branch)
        return branch

    def _enter(self, branch: Branch) -> None:
        self.branches[branch.number] = branch
        self._counts[branch.arena.tenant] += 1
        if branch.parent is not None:
            branch.parent.children += 1
        if branch.end.tip is not None:
            branch.arena.hold(branch.end.tip)

    def _settle(self, branch: Branch) -> None:
        """After something let go of it: without a holder its tip is let go, without a reference it leaves."""
        if branch.held:
            return
        tip, tokens, tail = branch.end
        if tip is not None:
            branch.end = End(None, tokens, tail)
            branch.arena.let_go(tip)
        if not branch.references:
            self._remove(branch)

    def _remove(self, branch: Branch) -> None:
        """It leaves, and those above it that stood there for its sake alone. A loop: lineages are long."""
        gone: list[int] = []
        leaving: Branch | None = branch
        while leaving is not None and not leaving.references:
            del self.branches[leaving.number]
            self._counts[leaving.arena.tenant] -= 1
            if leaving.noted:
                gone.append(leaving.number)
            parent, leaving.parent = leaving.parent, None
            if parent is not None:
                parent.children -= 1
            leaving = parent
        if gone:
            self._log.amend([], gone)


def ancestry(branch: Branch) -> Iterator[Branch]:
    """A branch and those above it, from itself to the root."""
    each: Branch | None = branch
    while each is not None:
        yield each
        each = each.parent


def _unnoted(branch: Branch | None) -> list[Branch]:
    """Ancestors that the log does not know; those above a noted one are noted."""
    found: list[Branch] = []
    while branch is not None and not branch.noted:
        found.append(branch)
        branch = branch.parent
    return found
