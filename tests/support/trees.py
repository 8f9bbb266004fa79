"""Branches whose bytes follow from their tokens, so that whoever reads one knows what must stand there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

import nexuskv
from nexuskv.contract import Descriptor, Flag

S = 4
"""Tokens a page."""


def tree(name: str = "tree", *, kib: int = 4) -> Descriptor:
    """A descriptor with pages of `kib` KiB, and more than one layer, so that a page's tokens do not lie together."""
    return nexuskv.mha(
        name, layers=2, kv_heads=kib * 8, head_dim=4, page_tokens=S, dtype="float16", engine_family="VLLM",
        compatibility_flags=[*Flag],
    )  # fmt: skip


def value(position: int, token: int) -> int:
    """What stands at every place of one token."""
    return (position * 31 + token * 7) % 1000


def fill(pages: Iterable[nexuskv.ReservedPage], branch: nexuskv.Branch, added: Sequence[int]) -> None:
    """Writes the tokens that were appended, and nothing else, into the absent pages."""
    start = branch.tokens
    for page in pages:
        for row, position in zip(range(page.rows.start, page.rows.stop), page.tokens, strict=True):
            for name in ("key", "value"):
                page[name][:, row] = value(position, added[position - start])


def grow(branch: nexuskv.Branch, added: Sequence[int]) -> nexuskv.Append:
    """Appends tokens with their bytes."""
    with branch.append(added) as pages:
        fill(pages, branch, added)
    return pages


def root(cache: nexuskv.Cache, tokens: Sequence[int]) -> nexuskv.Branch:
    """A branch of these tokens, computed and written if they are not there."""
    branch = cache.branch([])
    if tokens:
        grow(branch, tokens)
    return branch


def holds(hit: nexuskv.Hit, tokens: Sequence[int]) -> bool:
    """Whether a hit has just these tokens, with their bytes at every place."""
    if hit.tokens != len(tokens):
        return False
    for page in hit:
        wanted = [
            value(at, tokens[at])
            for at in range(page.position * S, min((page.position + 1) * S, len(tokens)))
        ]
        if not all(_rows(page[name], wanted) for name in ("key", "value")):
            return False
    return True


def reads(branch: nexuskv.Branch, tokens: Sequence[int]) -> bool:
    """Whether a branch has just these tokens, with their bytes."""
    with branch.read() as hit:
        return branch.tokens == len(tokens) and holds(hit, tokens)


def _rows(tensor: npt.NDArray[np.generic], wanted: list[int]) -> bool:
    return all(bool((tensor[:, row] == number).all()) for row, number in enumerate(wanted))
