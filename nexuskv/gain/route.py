"""Which way a boundary is reached: a local pointer, a pull from a peer, or computing it again; and why.

Owns the comparison and the answer. Pure: what is resident and what things cost is given. A gain is that of one whole
boundary: G = T_compute - T_cache of all tokens up to it. Only the longest boundary of each path is compared, since
T_compute is convex in the tokens and T_cache a line, so that a shorter one is never better than both it and nothing.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from nexuskv.contract import Descriptor
from nexuskv.contract.groups import member
from nexuskv.errors import LocalError
from nexuskv.gain.matrix import MATRIX, Row
from nexuskv.gain.paths import Path
from nexuskv.protocol.cost import ComputeCost


class Decision(StrEnum):
    """What the engine should do."""

    LOCAL_POINTER = "local_pointer"
    PULL_FROM_PEER = "pull_from_peer"
    RECOMPUTE = "recompute"


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way. `pages` and `nbytes` are what is read or moved for it, the times are of the whole boundary.

    `path` is what it goes over, `peer` the address of the host that it comes from, "" for this one.
    """

    decision: Decision
    path: str
    peer: str
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
    peer="",
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
    peer: str
    boundary_tokens: int
    pages: int
    nbytes: int
    compute_seconds: float
    cache_seconds: float
    gain_seconds: float
    reason: str
    options: tuple[Option, ...]


class Offer(msgspec.Struct, frozen=True):
    """A boundary in pages that another host has, and the way to it, None as long as no pull has measured it."""

    peer: str
    pages: int
    path: Path | None


def explain(
    descriptor: Descriptor,
    cost: ComputeCost,
    local: Path,
    local_pages: int,
    offers: Sequence[Offer] = (),
    read_bytes: int | None = None,
) -> Explanation:
    """The best way to the state of a prefix of which `local_pages` pages are a boundary on this host.

    `read_bytes` is how much of it will be read, where that is less than all: the selected blocks, for DSA. Raises
    LocalError for less than nothing.
    """
    if read_bytes is not None and read_bytes < 0:
        raise LocalError(f"read_bytes is {read_bytes}: give 0 or more, or None where all is read")
    router = _Router(descriptor, cost, local, local_pages, read_bytes)
    further = [offer for offer in offers if offer.pages > local_pages]
    pulls = (router.pull(offer, offer.path) for offer in further if offer.path is not None)
    options = (RECOMPUTE, *router.local(), *pulls)
    best = max(
        options, key=lambda option: option.gain_seconds
    )  # of equal ones the first: computing needs nobody
    return Explanation(
        semantic_type=descriptor.semantic_type,
        granularity=router.row.granularity,
        transport=router.row.transport,
        gain=router.row.gain,
        reason="; ".join([*_reasons(router.row, best, options), *router.unmeasured(further)]),
        options=options,
        **msgspec.structs.asdict(best),
    )


class _Router:
    """The options of one prefix."""

    def __init__(
        self, descriptor: Descriptor, cost: ComputeCost, local: Path, local_pages: int, read_bytes: int | None
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
        way = (Decision.LOCAL_POINTER, self._local.name, "")
        return (self._option(way, self._local_pages, len(needed), nbytes, seconds),)

    def pull(self, offer: Offer, path: Path) -> Option:
        """Moving what is not here, then reading all in place.

        What the boundary needs below the local one is here: it was needed for that too.
        """
        needed = self._needed(offer.pages)
        missing = needed.stop - max(needed.start, self._local_pages)
        moved = self._bytes(missing)
        seconds = path.seconds(missing, moved) + self._reading(len(needed))[1]
        way = (Decision.PULL_FROM_PEER, path.name, offer.peer)
        return self._option(way, offer.pages, missing, moved, seconds)

    def unmeasured(self, offers: Sequence[Offer]) -> Iterator[str]:
        """What is told of peers whose way has no numbers yet."""
        for offer in offers:
            if offer.path is None:
                tokens = offer.pages * self._descriptor.page_tokens
                yield f"{offer.peer} has it up to token {tokens:,}, at a cost that the first fetch will measure"

    def _needed(self, boundary: int) -> range:
        return member(self._descriptor.reuse, self._descriptor.page_tokens, 1).needed(boundary)

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
        self, way: tuple[Decision, str, str], boundary: int, pages: int, nbytes: int, seconds: float
    ) -> Option:
        decision, path, peer = way
        tokens = boundary * self._descriptor.page_tokens
        compute_seconds = self._cost.seconds(tokens)
        return Option(
            decision=decision,
            path=path,
            peer=peer,
            boundary_tokens=tokens,
            pages=pages,
            nbytes=nbytes,
            compute_seconds=compute_seconds,
            cache_seconds=seconds,
            gain_seconds=compute_seconds - seconds,
        )


def _reasons(row: Row, best: Option, options: tuple[Option, ...]) -> Iterator[str]:
    """The numbers that decided, then what each other way would have been."""
    others = [each for each in options if each is not best and each.decision is not Decision.RECOMPUTE]
    if best.decision is not Decision.RECOMPUTE:
        yield f"{_terms(row, best)} > 0 over {_way(best)}, up to token {best.boundary_tokens:,}"
    elif others:
        nearest = max(others, key=lambda option: option.gain_seconds)
        yield (
            f"{_terms(row, nearest)} <= 0 over {_way(nearest)}: computing {nearest.boundary_tokens:,} tokens "
            "is at least as fast as fetching them"
        )
        others.remove(nearest)
    else:
        yield "nothing is resident here or offered by a peer over a path with known cost: compute it, and keep it"
    yield from (_compared(other, best) for other in others)


def _compared(other: Option, best: Option) -> str:
    """Another way: of one that goes further, what it adds, since computing that instead is what was decided."""
    more = other.boundary_tokens - best.boundary_tokens
    if other.decision is not Decision.PULL_FROM_PEER or more <= 0:
        return f"{_way(other)} gains {_time(other.gain_seconds)} up to token {other.boundary_tokens:,}"
    computing = other.compute_seconds - best.compute_seconds
    pulling = other.cache_seconds - best.cache_seconds
    return (
        f"pulling {more:,} tokens more over {_way(other)} is slower than computing them: {_time(pulling)}, "
        f"not {_time(computing)}"
    )


def _way(option: Option) -> str:
    return f"{option.path} from {option.peer}" if option.peer else option.path


def _terms(row: Row, option: Option) -> str:
    times = f"{_time(option.compute_seconds)} - {_time(option.cache_seconds)}"
    return f"{row.gain} = {times} = {_time(option.gain_seconds)}"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
