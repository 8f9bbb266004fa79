"""Which pages make a prefix restorable: the reuse rule of a descriptor, and its answer for what is present.

Owns the three rules and one pure function. Knows nothing of entries, arenas or pins: the daemon tells it what is
present, page by page, and learns which pages a reader needs.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from nexuskv.errors import DescriptorError

_PRESENT, _ABSENT = b"\x01", b"\x00"


class AllPages(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ALL_PAGES", tag_field="rule"):
    """Attention: a boundary needs every page before it."""


class LastCheckpoint(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="LAST_CHECKPOINT", tag_field="rule"
):
    """Recurrent state and SSM: a boundary needs the one checkpoint that ends at it."""


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="WINDOW", tag_field="rule"):
    """Sliding-window attention: a boundary needs the pages that hold the last `tokens` tokens before it."""

    tokens: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})]

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise DescriptorError("tokens", f"a window of {self.tokens} tokens; it must be 1 or more")


Reuse = AllPages | LastCheckpoint | Window


def usable(reuse: Reuse, present: Sequence[bool], page_tokens: int) -> range:
    """Pages that make the longest restorable boundary; the boundary is the range's stop, empty when there is none.

    `present[i]` says whether page i, of `page_tokens` tokens, is resident. O(len(present)).
    """
    pages = bytes(present)
    match reuse:
        case AllPages():
            return range(_leading(pages))
        case LastCheckpoint():
            last = pages.rfind(_PRESENT)
            return range(max(last, 0), last + 1)
        case Window(tokens=tokens):
            return _windowed(pages, -(-tokens // page_tokens))


def _windowed(pages: bytes, needed: int) -> range:
    """The last run of `needed` present pages, or the leading run where even that is shorter than the window."""
    start = pages.rfind(_PRESENT * needed)
    return range(_leading(pages)) if start < 0 else range(start, start + needed)


def _leading(pages: bytes) -> int:
    first_absent = pages.find(_ABSENT)
    return len(pages) if first_absent < 0 else first_absent
