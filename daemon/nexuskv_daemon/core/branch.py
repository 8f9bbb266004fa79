"""What the daemon knows of one branch, and what of it outlives the daemon.

    root ----------- child ----------- grandchild        children, `parent`
      |  (tip)         |  (tip)           |
    page <- page <- page <- page        page             `tip`: the last page; those before it hang from their entries

A branch is *held* while a session has it or it is published: then its tip is held too, and with that, as eviction
takes leaves first, all that stands before it. One that nobody holds stays for its children's sake as a line of their
descent; its pages are not its own affair any more. Owns the record alone: the rules are those of the lineage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry

if TYPE_CHECKING:
    from nexuskv_daemon.core.growth import Growth


class End(NamedTuple):
    """Where a context ends: its last page, all its tokens, and those that stand in a page that is not full (u32)."""

    tip: Entry | None
    tokens: int
    tail: bytes


class Branch:
    """One branch; `root` is the root of its chain's keys, `noted` says that the log knows it."""

    __slots__ = (
        "arena", "children", "copies", "depth", "end", "growth", "holders", "noted", "number", "parent", "published",
        "root",
    )  # fmt: skip

    def __init__(
        self, number: int, arena: Arena, root: bytes, parent: Branch | None, depth: int, end: End
    ) -> None:
        self.number = number
        self.arena = arena
        self.root = root
        self.parent = parent
        self.depth = depth
        self.end = end
        self.children = 0
        self.holders = 0
        self.copies = 0
        self.published = False
        self.noted = False
        self.growth: Growth | None = None

    @property
    def held(self) -> bool:
        """Whether anybody may still read it or append to it."""
        return self.published or self.holders > 0

    @property
    def references(self) -> int:
        """Children, holders, and the publication: it leaves when there is none."""
        return self.children + self.holders + self.published

    def line(self) -> BranchLine:
        """What of it outlives the daemon."""
        tip, tokens, tail = self.end
        return BranchLine(
            number=self.number,
            parent=self.parent.number if self.parent is not None else 0,
            depth=self.depth,
            arena=self.arena.number,
            root=self.root,
            tip=tip.key if tip is not None else b"",
            tokens=tokens,
            tail=tail,
            copies=self.copies,
            published=self.published,
        )


class BranchLine(msgspec.Struct, array_like=True, frozen=True, tag="branch"):
    """A branch as it is written down; one that is not `published` is there for its children's lineage."""

    number: int
    parent: int
    depth: int
    arena: int
    root: bytes
    tip: bytes
    tokens: int
    tail: bytes
    copies: int
    published: bool


class BranchLog(Protocol):
    """Where lines are written down, for the next daemon."""

    def note(self, lines: list[BranchLine]) -> None:
        """Writes lines down before anybody relies on them. Raises ArenaFull; then none of them counts."""
        ...

    def amend(self, lines: list[BranchLine], gone: list[int]) -> None:
        """Writes changes down, at the next occasion if not now: what is there meanwhile was true a moment ago."""
        ...


class NoLog:
    """Forgets: nothing outlives this process."""

    def note(self, lines: list[BranchLine]) -> None:
        """Nothing."""

    def amend(self, lines: list[BranchLine], gone: list[int]) -> None:
        """Nothing."""
