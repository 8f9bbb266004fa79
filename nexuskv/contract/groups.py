"""Groups: several descriptors that restore a prefix together, and the longest boundary that what is present allows.

Owns where boundaries lie, which pages each needs, and one pure function. Knows nothing of entries, arenas or pins: the
caller says page by page what is present.

A boundary lies where pages of all members end, so every `tokens` tokens, the least common multiple of their
`page_tokens`. Of each member it has the pages since the boundary before:

    page_tokens   0           16          32          48          64   token
    16, ALL       [ page 0   ][ page 1   ][ page 2   ][ page 3   ]
    16, WINDOW(8)             [ page 1   ]            [ page 3   ]     of the others no boundary needs any
    32, LAST      [ checkpoint 0         ][ checkpoint 1         ]
                                          ^ boundary 1            ^ boundary 2

To restore boundary 2, attention needs the pages of boundary 1 too, the window needs as many before it as it is long,
and the checkpoint itself is enough.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import assert_never

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.reuse import AllPages, LastCheckpoint, Reuse, Window
from nexuskv.errors import LocalError

EVERY = sys.maxsize
_PRESENT, _ABSENT = b"\x01", b"\x00"


@dataclass(frozen=True, slots=True)
class Member:
    """A descriptor's rule in a group: `pages` of it lie between two boundaries, and each needs the last `reach`."""

    pages: int
    reach: int

    @property
    def chained(self) -> bool:
        """Whether a boundary needs every page before it."""
        return self.reach == EVERY

    def needed(self, boundary: int) -> range:
        """Pages without which the boundary is of no use; boundary 0 is the start, which needs none."""
        stop = boundary * self.pages
        return range(max(0, stop - self.reach), stop)

    def own(self, boundary: int) -> range:
        """Pages that belong to this boundary and no other: of those it needs, the ones since the boundary before."""
        stop = boundary * self.pages
        return range(stop - min(self.pages, self.reach), stop)

    def longest(self, present: bytes, limit: int) -> int:
        """The largest boundary up to `limit` whose pages of this member are there; a byte a page, 1 = present."""
        if self.chained:
            absent = present.find(_ABSENT, 0, limit * self.pages)
            return limit if absent < 0 else absent // self.pages
        if self.reach == 1:
            return present[self.pages - 1 : limit * self.pages : self.pages].rfind(_PRESENT) + 1
        while limit:
            needed = self.needed(limit)
            absent = present.rfind(_ABSENT, needed.start, needed.stop)
            if absent < 0:
                break
            limit = absent // self.pages  # the last boundary that does not need this page
        return limit


def member(reuse: Reuse, page_tokens: int, pages: int) -> Member:
    """The rule of pages of `page_tokens` tokens, `pages` of them a boundary."""
    match reuse:
        case AllPages():
            return Member(pages, EVERY)
        case LastCheckpoint():
            return Member(pages, 1)
        case Window():
            return Member(pages, -(-reuse.tokens // page_tokens))
        case _:
            assert_never(reuse)


def boundary_tokens(descriptors: Sequence[Descriptor]) -> int:
    """Tokens between two boundaries of a group. Raises LocalError for what is no group."""
    if not descriptors:
        raise LocalError(
            "a group of no descriptors: name its members, e.g. attention, indexer and checkpoint"
        )
    digests = [descriptor.digest for descriptor in descriptors]
    for place, descriptor in enumerate(descriptors):
        if digests.index(digests[place]) < place:
            other = descriptors[digests.index(digests[place])]
            raise LocalError(
                f"{descriptor.descriptor_id!r} and {other.descriptor_id!r} are one physical contract, so their pages "
                "would have the same keys: put the layers of both into one descriptor"
            )
    return lcm(*(descriptor.page_tokens for descriptor in descriptors))


def members(descriptors: Sequence[Descriptor]) -> tuple[Member, ...]:
    """The rules of a group's members, in their order. Raises LocalError for what is no group."""
    tokens = boundary_tokens(descriptors)
    return tuple(member(each.reuse, each.page_tokens, tokens // each.page_tokens) for each in descriptors)


def longest_boundary(group: Sequence[Member], present: Sequence[bytes], limit: int) -> int:
    """The largest boundary up to `limit` at which every member satisfies its own rule; 0 when there is none.

    `present` has a byte for each page of each member, from the first on: 1 when it is there.
    """
    while True:
        longest = limit
        for each, pages in zip(group, present, strict=True):
            longest = each.longest(pages, longest)
        if longest == limit:
            return limit
        limit = longest
