"""Which pages make a prefix restorable: the reuse rule of a descriptor, and its answer for what is present.

Owns the three rules and one pure function. Knows nothing of entries, arenas or pins: the caller says page by page
what is present, and learns which pages a reader needs.
"""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from nexuskv.contract.faults import hold_to_types
from nexuskv.contract.tensors import Size, check_size

_PRESENT, _ABSENT = b"\x01", b"\x00"


class AllPages(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ALL_PAGES", tag_field="rule"):
    """Attention: a boundary needs every page before it."""


class LastCheckpoint(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="LAST_CHECKPOINT", tag_field="rule"
):
    """Recurrent state and SSM: a boundary needs the one checkpoint that ends at it."""


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="WINDOW", tag_field="rule"):
    """Sliding-window attention: a boundary needs the pages that hold the last `tokens` tokens before it."""

    tokens: Size

    def __post_init__(self) -> None:
        hold_to_types(self)
        check_size("tokens", self.tokens)


Reuse = AllPages | LastCheckpoint | Window


def usable(reuse: Reuse, present: Iterable[int], page_tokens: int) -> range:
    """Pages that make the longest restorable boundary; it lies at the range's stop, and is none for an empty range.

    `present` says for each page of `page_tokens` tokens, from the first on, whether it is resident. O(pages).
    """
    pages = bytes(map(bool, present))
    match reuse:
        case AllPages():
            absent = pages.find(_ABSENT)
            return range(len(pages) if absent < 0 else absent)
        case LastCheckpoint():
            last = pages.rfind(_PRESENT)
            return range(max(last, 0), last + 1)
        case Window():
            return _last_run(pages, -(-reuse.tokens // page_tokens))
        case _:
            assert_never(reuse)


def _last_run(pages: bytes, needed: int) -> range:
    """End of the last run of `needed` present pages; the leading run may be shorter, as nothing precedes it."""
    stop = len(pages)
    while stop > 0:
        start = pages.rfind(_ABSENT, 0, stop) + 1
        if stop - start >= needed or start == 0:
            return range(max(start, stop - needed), stop)
        stop = start - 1
    return range(0)
