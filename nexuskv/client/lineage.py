"""What is asked of the daemon about branches.

Owns the messages that need no branch object, and what their replies are called in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from nexuskv.client.hit import Hit
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.protocol import branches as b


@dataclass(frozen=True, slots=True)
class Origin:
    """The cache that branches are of: `root` is its chain's, `match` its way to pages."""

    keeper: SessionKeeper
    descriptor: Descriptor
    root: bytes
    match: Callable[[list[bytes]], Hit]


class End(NamedTuple):
    """Where a branch ends: key of its last page, all its tokens, and those in a last page that is not full (u32)."""

    tip: bytes
    tokens: int
    tail: bytes


class BranchInfo(NamedTuple):
    """A branch as the daemon knows it; `cow_ref_cnt` counts its children, its holders, and its publication.

    `parent_entry_id` is 0 without a parent; `copies` counts pages that its appends had to copy.
    """

    branch_id: int
    parent_entry_id: int
    branch_depth: int
    cow_ref_cnt: int
    tokens: int
    copies: int
    published: bool


def opened(session: Session, origin: Origin, keys: list[bytes]) -> b.Branched:
    """A new branch at the end of a resident chain of full pages. Raises ParentMissing, BadRequest."""
    arena, tip = session.arena(origin.descriptor), keys[-1] if keys else b""
    return session.call(b.OpenBranch(session.number(), arena, origin.root, tip, len(keys)), b.Branched)


def attached(session: Session, origin: Origin, branch: int) -> b.Branched:
    """One more hold of a published branch. Raises UnknownBranch, BadRequest for one of another cache."""
    arena = session.arena(origin.descriptor)
    return session.call(b.AttachBranch(session.number(), branch, arena, origin.root), b.Branched)


def traced(session: Session, branch: int, most: int = 0) -> list[BranchInfo]:
    """A branch and those above it; no more than `most`, if that is not 0. Raises UnknownBranch."""
    rows: list[BranchInfo] = []
    while branch and (not most or len(rows) < most):
        wanted = min(most - len(rows), b.BRANCHES_A_REPLY) if most else b.BRANCHES_A_REPLY
        part = session.call(b.TraceBranch(session.number(), branch, wanted), b.Branches)
        rows += map(_info, part.rows)
        branch = part.next
    return rows


def listed(session: Session, origin: Origin) -> list[BranchInfo]:
    """The published branches of a cache, by id."""
    rows: list[BranchInfo] = []
    first = 1
    while first:
        request = b.ListBranches(session.number(), session.arena(origin.descriptor), origin.root, first)
        part = session.call(request, b.Branches)
        rows += map(_info, part.rows)
        first = part.next
    return rows


def end_of(found: b.Branched) -> End:
    """Where a branch ends."""
    return End(found.tip, found.row.tokens, found.tail)


def _info(row: b.BranchRow) -> BranchInfo:
    return BranchInfo(
        row.branch,
        row.parent_entry_id,
        row.branch_depth,
        row.cow_ref_cnt,
        row.tokens,
        row.copies,
        row.published,
    )
