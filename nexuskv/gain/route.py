"""Which way a boundary is reached: a local pointer, a pull from a peer, or computing it again; and why.

Owns the comparison and the answer. Pure: what is resident and what things cost is given. A gain is that of one whole
boundary: G = T_compute - T_cache of all tokens up to it. Only the longest boundary of each path is compared, since
T_compute is convex in the tokens and T_cache a line, so that a shorter one is never better than both it and nothing.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from nexuskv.contract import Descriptor, usable
from nexuskv.gain.compute import Declared
from nexuskv.gain.matrix import MATRIX, Row
from nexuskv.gain.paths import Path


class Decision(StrEnum):
    """What the engine should do."""

    LOCAL_POINTER = "local_pointer"
    PULL_FROM_PEER = "pull_from_peer"
    RECOMPUTE = "recompute"


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way. `pages` and `nbytes` are what is read or moved for it, the times are of the whole boundary."""

    decision: Decision
    path: str
    boundary_tokens: int
    pages: int
    nbytes: int
    compute_seconds: float
    cache_seconds: float
    gain_seconds: float
    """G: above 0, the cache is the faster way."""


RECOMPUTE = Option(
    decision=Decision.RECOMPUTE,
    path="none",
    boundary_tokens=0,
    pages=0,
    nbytes=0,
    compute_seconds=0.0,
    cache_seconds=0.0,
    gain_seconds=0.0,
)
"""Nothing is fetched and nothing saved: what the other ways are compared with."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided, by which numbers, and why; `granularity`, `transport` and `gain` are the kind's row."""

    semantic_type: str
    granularity: str
    transport: str
    gain: str
    decision: Decision
    path: str
    boundary_tokens: int
    pages: int
    nbytes: int
    compute_seconds: float
    cache_seconds: float
    gain_seconds: float
    reason: str
    options: tuple[Option, ...]


class Offer(msgspec.Struct, frozen=True):
    """A path to another host, and the boundary in pages that it has."""

    path: Path
    pages: int


def explain(
    descriptor: Descriptor,
    cost: Declared,
    local: Path,
    local_pages: int,
    offers: Sequence[Offer] = (),
    read_bytes: int | None = None,
) -> Explanation:
    """The best way to the state of a prefix of which `local_pages` pages are a boundary on this host.

    `read_bytes` is how much of it will be read, where that is less than all: the selected blocks, for DSA.
    """
    router = _Router(descriptor, cost, local, local_pages, read_bytes)
    options = (
        RECOMPUTE,
        *router.local(),
        *(router.pull(offer) for offer in offers if offer.pages > local_pages),
    )
    best = max(
        options, key=lambda option: option.gain_seconds
    )  # of equal ones the first: computing needs nobody
    return Explanation(
        semantic_type=descriptor.semantic_type,
        granularity=router.row.granularity,
        transport=router.row.transport,
        gain=router.row.gain,
        reason=_reason(router.row, best, options),
        options=options,
        **msgspec.structs.asdict(best),
    )


class _Router:
    """The options of one prefix."""

    def __init__(
        self, descriptor: Descriptor, cost: Declared, local: Path, local_pages: int, read_bytes: int | None
    ) -> None:
        self.row: Row = MATRIX[descriptor.semantic_type]
        self._descriptor = descriptor
        self._cost = cost
        self._local = local
        self._local_pages = local_pages
        self._read_bytes = read_bytes

    def local(self) -> tuple[Option, ...]:
        """Reading in place what is here, if anything is."""
        if not self._local_pages:
            return ()
        needed = self._needed(self._local_pages)
        nbytes, seconds = self._reading(len(needed))
        return (
            self._option(
                Decision.LOCAL_POINTER, self._local.name, self._local_pages, len(needed), nbytes, seconds
            ),
        )

    def pull(self, offer: Offer) -> Option:
        """Moving what is not here, then reading all in place.

        What the boundary needs below the local one is here: it was needed for that too.
        """
        needed = self._needed(offer.pages)
        missing = needed.stop - max(needed.start, self._local_pages)
        moved = self._bytes(missing)
        seconds = offer.path.seconds(missing, moved) + self._reading(len(needed))[1]
        return self._option(Decision.PULL_FROM_PEER, offer.path.name, offer.pages, missing, moved, seconds)

    def _needed(self, boundary: int) -> range:
        return usable(self._descriptor.reuse, [True] * boundary, self._descriptor.page_tokens)

    def _reading(self, pages: int) -> tuple[int, float]:
        """Bytes and seconds of reading pages that are here."""
        if self.row.moves_nothing:
            return 0, 0.0
        nbytes = self._bytes(pages)
        return nbytes, self._local.seconds(pages, nbytes)

    def _bytes(self, pages: int) -> int:
        whole = pages * self._descriptor.page_bytes
        return whole if self._read_bytes is None else min(whole, self._read_bytes)

    def _option(
        self, decision: Decision, path: str, boundary: int, pages: int, nbytes: int, seconds: float
    ) -> Option:
        tokens = boundary * self._descriptor.page_tokens
        compute_seconds = self._cost.seconds(tokens)
        return Option(
            decision=decision,
            path=path,
            boundary_tokens=tokens,
            pages=pages,
            nbytes=nbytes,
            compute_seconds=compute_seconds,
            cache_seconds=seconds,
            gain_seconds=compute_seconds - seconds,
        )


def _reason(row: Row, best: Option, options: tuple[Option, ...]) -> str:
    """One sentence with the numbers that decided."""
    others = [
        option for option in options if option is not best and option.decision is not Decision.RECOMPUTE
    ]
    if best.decision is Decision.RECOMPUTE:
        if not others:
            return "nothing is resident here or offered by a peer: compute it, and keep it"
        nearest = max(others, key=lambda option: option.gain_seconds)
        return (
            f"{_terms(row, nearest)} <= 0 over {nearest.path}: computing {nearest.boundary_tokens:,} tokens "
            "is at least as fast as fetching them"
        )
    sentence = f"{_terms(row, best)} > 0 over {best.path}, up to token {best.boundary_tokens:,}"
    for other in others:
        sentence += f"; {other.path} gains {_time(other.gain_seconds)} up to token {other.boundary_tokens:,}"
    return sentence


def _terms(row: Row, option: Option) -> str:
    times = f"{_time(option.compute_seconds)} - {_time(option.cache_seconds)}"
    return f"{row.gain} = {times} = {_time(option.gain_seconds)}"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
