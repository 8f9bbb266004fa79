"""Messages about branches: a tree of contexts in which a child begins as its parent is, without a page being moved.

Owns their wire form, which follows the rules of `messages`. A *branch* is a number that no other branch of this daemon
or of an earlier one bears. Its *tip* is the key of its last page, empty while it has none; its *tail* holds the tokens
of a tip that is only partly filled, as u32 little-endian, and is empty when the tip is full. An append is ended by
`Commit` with `rest`, or by `Abort`, as any reservation is.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from nexuskv.protocol.messages import KEY_BYTES, MAX_KEYS, U32, U63, Key, Message

MAX_TAIL_BYTES = 32 * 1024
BRANCHES_A_REPLY = 2000
MAX_HELD = 65_536
"""Branches that one session holds at once."""
NO_HANDLE = -1

Tip = Annotated[bytes, Meta(max_length=KEY_BYTES)]
Tail = Annotated[bytes, Meta(max_length=MAX_TAIL_BYTES)]


class OpenBranch(Message, frozen=True, tag="open_branch"):
    """Makes a branch without a parent: a chain of `pages` full pages that ends at `tip`, below the chain's `root`."""

    arena: U32
    root: Key
    tip: Tip
    pages: U63


class AttachBranch(Message, frozen=True, tag="attach_branch"):
    """Holds a published branch, or once more one that this session holds, if it is of that arena and root."""

    branch: U63
    arena: U32
    root: Key


class Fork(Message, frozen=True, tag="fork"):
    """Makes `count` children of a branch that this session holds."""

    branch: U63
    count: Annotated[int, Meta(ge=1, le=MAX_KEYS)]


class Append(Message, frozen=True, tag="append"):
    """Asks for the pages that make a branch `tokens` tokens longer. `tip` is where the sender believes it to end.

    `keys` begins with the page that takes the branch's tail over, if it has one, and ends with the new tip, whose
    tail is `tail`.
    """

    branch: U63
    tip: Tip
    keys: Annotated[list[Key], Meta(min_length=1, max_length=MAX_KEYS)]
    tokens: U63
    tail: Tail = b""


class PublishBranch(Message, frozen=True, tag="publish_branch"):
    """Lets a branch stay when nobody holds it, for others to attach to; or, without `published`, no longer."""

    branch: U63
    published: bool = True


class DropBranches(Message, frozen=True, tag="drop"):
    """Lets go of branches, once each time that one is named."""

    branches: Annotated[list[U63], Meta(max_length=MAX_KEYS)]


class TraceBranch(Message, frozen=True, tag="trace_branch"):
    """Asks for a branch and the `rows` - 1 branches above it; a reply has BRANCHES_A_REPLY at most."""

    branch: U63
    rows: Annotated[int, Meta(ge=1, le=MAX_KEYS)] = BRANCHES_A_REPLY


class ListBranches(Message, frozen=True, tag="list_branches"):
    """Asks for the published branches of an arena and root, by number, from `first` on."""

    arena: U32
    root: Key
    first: U63 = 0


class GetPath(Message, frozen=True, tag="path"):
    """Asks for the page keys of a branch, from the page before `below` upwards; from the tip if that is empty."""

    branch: U63
    below: Tip = b""


class BranchRow(msgspec.Struct, array_like=True, frozen=True):
    """One branch. `cow_ref_cnt` counts its children, who holds it, and its publication.

    `parent_entry_id` is 0 where there is no parent; `copies` counts pages copied by its appends.
    """

    branch: int
    parent_entry_id: int
    branch_depth: int
    cow_ref_cnt: int
    tokens: int
    copies: int
    published: bool


class Branched(Message, frozen=True, tag="branched"):
    """Answers `OpenBranch` and `AttachBranch`."""

    row: BranchRow
    tip: bytes
    tail: bytes


class Forked(Message, frozen=True, tag="forked"):
    """Answers `Fork`: the `count` children bear `first` and the numbers after it, and begin as their parent is now."""

    first: int
    count: int
    depth: int
    tokens: int
    tip: bytes
    tail: bytes


class Appending(Message, frozen=True, tag="appending"):
    """Answers `Append`: `handles[i]` is the slot for `keys[positions[i]]`; the others are resident.

    `source` is the page whose tail the first of them takes over: its tokens are to be copied from there. It is
    NO_HANDLE when there is nothing to copy, as the tokens stand in the slot already or the tip was full.
    """

    reservation: int
    positions: list[int]
    handles: list[int]
    source: int = NO_HANDLE


class Branches(Message, frozen=True, tag="branches"):
    """Answers `TraceBranch` and `ListBranches`; `next` is the branch to go on from, 0 when this was all."""

    rows: list[BranchRow]
    next: int = 0


class Path(Message, frozen=True, tag="path_keys"):
    """Answers `GetPath`: keys from the lowest page upwards; with `more`, the last one is not the first of the chain.

    `tokens` and `tail` are those of the branch now, of which the first key of an answer from the tip is the tip.
    """

    keys: list[bytes]
    more: bool
    tokens: int
    tail: bytes
