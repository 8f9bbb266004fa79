"""Every invariant of branches in one place.

Owns the statement of what must always hold between branches, and between them and pages. It walks everything, so only
tests call it, as part of `check`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.branch import Branch
from nexuskv_daemon.core.entries import COMMITTED, Entry
from nexuskv_daemon.core.lineage import Lineage

TOKEN_BYTES = 4


def check_branches(lineage: Lineage, arenas: Iterable[Arena]) -> None:
    """Raises AssertionError when an invariant is broken."""
    branches = lineage.branches
    children = Counter(each.parent for each in branches.values() if each.parent is not None)
    for number, branch in branches.items():
        assert branch.number == number
        assert branch.children == children[branch]
        assert branch.references > 0
        _check_descent(branch, branches.values())
        _check_end(branch)
    for arena in arenas:
        tips = Counter(e.end.tip for e in branches.values() if e.arena is arena and e.end.tip is not None)
        _check_holds(arena, tips)
        _check_partial(arena)


def _check_descent(branch: Branch, branches: Iterable[Branch]) -> None:
    parent = branch.parent
    assert parent is None or (parent in branches and branch.depth == parent.depth + 1)
    assert parent is None or (branch.arena is parent.arena and branch.root == parent.root)
    assert not (branch.noted and parent is not None and not parent.noted)


def _check_end(branch: Branch) -> None:
    """Who is held has a tip, unless it is empty or its tip's slot has passed on; the tail is what its last page has."""
    tip, tokens, tail = branch.end
    page_tokens = branch.arena.descriptor.page_tokens
    assert len(tail) == tokens % page_tokens * TOKEN_BYTES
    if tip is None:
        assert not branch.held or not tokens or (branch.growth is not None and branch.arena.vacated)
        return
    assert branch.held
    assert tip.state is COMMITTED
    assert branch.arena.index[tip.key] is tip
    assert branch.arena.partial.get(tip.key, page_tokens) == (len(tail) // TOKEN_BYTES or page_tokens)
    pages, entry = 0, tip.parent
    while entry is not None:
        pages += 1
        assert entry.key not in branch.arena.partial
        entry = entry.parent
    assert pages == (tokens - 1) // page_tokens


def _check_holds(arena: Arena, tips: Mapping[Entry, int]) -> None:
    """Every hold is a branch's, or that of an open append on pages that it found resident."""
    for entry, branches in arena.held.items():
        assert entry.pins
        assert branches >= tips.get(entry, 0)
    assert all(tip in arena.held for tip in tips)


def _check_partial(arena: Arena) -> None:
    """Nothing hangs from a page that is not full, and no key stands for a page and for one whose slot has passed on."""
    assert not any(arena.index[key].children for key in arena.partial.keys() & arena.index.keys())
    assert not arena.vacated & (arena.index.keys() | arena.writing.keys())
    there = arena.index.keys() | arena.writing.keys() | arena.vacated | {e.key for e in arena.retiring}
    assert arena.partial.keys() <= there
