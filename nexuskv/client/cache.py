"""The cache of one descriptor and model: keys, hits, reservations.

Owns the root of its keys and the splitting of long calls into messages. A hit or reservation belongs to the session
that it was made in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from time import perf_counter
from typing import Literal, NamedTuple

from nexuskv import contract
from nexuskv.client import fetching
from nexuskv.client.asked import find
from nexuskv.client.block_hit import BlockHit, Search
from nexuskv.client.blocks import Numbers
from nexuskv.client.branch import Branch, attach_branch, open_branch
from nexuskv.client.fetching import Fetched
from nexuskv.client.hit import Hit, Keys
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.lineage import BranchInfo, Origin, listed
from nexuskv.client.reservation import Reservation
from nexuskv.client.session import Session
from nexuskv.client.ways import Way, search, search_again, way_to
from nexuskv.contract import permissions
from nexuskv.contract.blocks import Blocks, blocks_of
from nexuskv.errors import BadRequest, DeadlineExceeded, Disconnected
from nexuskv.gain import PINNED_MEMORY, Explanation, Gain, MeasuredPath, Offer, calibration
from nexuskv.native import Moved
from nexuskv.pinned import Pinned, pin
from nexuskv.protocol import messages as m
from nexuskv.protocol.cost import ComputeCost
from nexuskv.protocol.fetches import BlockName


class PageStatus(NamedTuple):
    """What the daemon knows of a key; `reason` says why a page is absent, and is empty for one that is present."""

    state: Literal["present", "absent", "being_written"]
    reason: str


_STATUS = {
    m.PRESENT: PageStatus("present", ""),
    m.NEVER_SEEN: PageStatus("absent", "never seen, or evicted too long ago to be remembered"),
    m.EVICTED: PageStatus("absent", "evicted"),
    m.BEING_WRITTEN: PageStatus("being_written", "reserved, and not committed yet"),
}


class Cache:
    """Pages of one descriptor, model and salt in the tenant's arena."""

    def __init__(self, keeper: SessionKeeper, descriptor: contract.Descriptor, model: str, salt: str) -> None:
        self._way = keeper.use(lambda session: way_to(session, descriptor))
        self._keeper = keeper
        self.descriptor = descriptor
        self.model = model
        self.gain = Gain(descriptor, keeper.paths)
        """What computing and fetching these pages costs: `declare` or `observe` the former."""
        root = contract.content_root if descriptor.content_keyed else contract.chain_root
        self.root = root(descriptor.digest, model, self._way.session.welcome.tenant, salt)
        self._whole_or_nothing = permissions.is_whole_or_nothing(descriptor)
        self._origin = Origin(keeper, descriptor, self.root, self._longest)

    def keys(self, token_ids: contract.TokenIds) -> list[bytes]:
        """Page keys of a token sequence: 32 bytes for each full page, each chained to the one before.

        Without PREFIX_REUSE among the descriptor's flags, all tokens are in each of them. Raises LocalError for what is
        no token id, BadRequest where pages are found by their content.
        """
        if self.descriptor.content_keyed:
            raise BadRequest(f"{self.descriptor.semantic_type} is found by its content: use content_keys()")
        named = contract.exact_keys if self._whole_or_nothing else contract.page_keys
        return named(self.root, token_ids, self.descriptor.page_tokens)

    def content_keys(self, content: contract.Content, pages: int = 1) -> list[bytes]:
        """Keys of the `pages` pages of one input: 32 bytes each, and none depends on another page.

        `content` is all that the state is computed from, or a hash of it. Raises LocalError for what has no bytes,
        BadRequest where pages are found by the tokens before them.
        """
        if not self.descriptor.content_keyed:
            raise BadRequest(f"{self.descriptor.semantic_type} is found by its tokens: use keys()")
        return contract.content_keys(self.root, content, pages)

    def match(self, keys: Keys, *, fetch: bool = False, within: float | None = None) -> Hit:
        """Pins the longest restorable boundary of `keys` (its resident prefix, for attention); may be empty.

        Without PREFIX_REUSE among the descriptor's flags it is that of all `keys`, or empty. Pages that are found by
        their content are no prefix of anything: give the keys of one input, or span of it, and the hit has those up to
        the first that is absent.

        Takes no message and no system call, once the segments are mapped, and works while the daemon is stopped or
        dead: what is not mapped is a miss then. With `fetch`, what is absent is pulled from another host first, as by
        `fetch`. The hit must be closed: use it in a `with`. Raises PinsFull, FlagMissing, and Disconnected where the
        client shares no index, or lost it to a daemon that started afresh and is gone too.
        """
        if fetch:
            return self._match_fetching(keys, within)
        if self._whole_or_nothing:
            return self._whole(keys)
        way = self._way  # as `_longest` does it, which takes a closure and two calls more for each hit
        if not way.wire.alive:
            way = self._choose()
        try:
            return way.match(keys)
        except Moved:  # this daemon's successor started afresh
            way.session.close()
        except Disconnected:  # it was asked, and is gone or was restarted
            pass
        except ValueError as error:
            raise no_key(error) from error
        hit: Hit = search_again(self._choose, lambda other: other.match(keys))
        return hit

    def _whole(self, keys: Keys) -> Hit:
        permissions.require_reuse(self.descriptor)
        hit = self._longest(keys)
        if hit.stop == len(keys):
            return hit
        hit.close()
        return self._longest(keys[:0])

    def _longest(self, keys: Keys) -> Hit:
        try:
            found: Hit = search(self._choose(), self._choose, lambda way: way.match(keys))
        except ValueError as error:
            raise no_key(error) from error
        return found

    def fetch(self, keys: Keys, *, within: float | None = None) -> Fetched:
        """Pulls what is absent of `keys` from the peer that has most of it; waits `within` seconds at most (5).

        What other hosts lack, do wrong or do too late is no error: fewer pages come, and `reason` says why. Nor is a
        pull made that would take longer than computing does by what `gain` knows. Raises Closed, Disconnected,
        FlagMissing.
        """
        return fetching.fetch(self._keeper, self._plan(keys), within)

    def prefetch(self, keys: Keys) -> None:
        """As `fetch`, without waiting for it: a later match finds what came.

        Raises Closed, Disconnected, FlagMissing.
        """
        fetching.prefetch(self._keeper, self._plan(keys))

    def blocks(
        self,
        wanted: Mapping[bytes, Numbers],
        *,
        layer: int | None = None,
        fetch: bool = False,
        within: float | None = None,
    ) -> BlockHit:
        """Just these blocks of sparse pages: `wanted` has their numbers by the key of their page.

        Numbers are the selector's, as in `Hit.blocks`; where pages have none (NSA), places in the page.

        A page that is here is read in place. Of others, blocks that were pulled before are; with `fetch`, what is still
        absent is pulled from another host: those blocks, and no byte of others. They stay here like any page. The
        pages are in the order of their chain. Less than all is a miss: the result is empty then, and says why. It must
        be closed: use it in a `with`. Raises BadRequest for what are no blocks, PinsFull, Disconnected.
        """
        check_keys(tuple(wanted))
        search = Search(self._blocks, layer, self, lambda: self._lone)

        def pull(names: list[BlockName]) -> Fetched:
            self._register()
            return fetching.fetch(
                self._keeper, fetching.BlockPlan(self.descriptor, search.layer, names), within
            )

        return search.find(wanted, pull if fetch else None)

    @cached_property
    def _blocks(self) -> Blocks:
        return blocks_of(self.descriptor)

    @cached_property
    def _lone(self) -> Cache:
        """Where blocks that were pulled are pages of their own."""
        return Cache(self._keeper, self._blocks.descriptor, self.model, "")

    def _match_fetching(self, keys: Keys, within: float | None) -> Hit:
        hit = self.match(keys)
        if hit.stop == len(keys):
            return hit
        with hit:  # pinned meanwhile, so that what comes does not push out what it hangs from
            with contextlib.suppress(Disconnected, DeadlineExceeded):
                self.fetch(keys, within=within)
            return self.match(keys)

    def _plan(self, keys: Keys) -> fetching.Plan:
        permissions.require_reuse(self.descriptor)
        check_keys(keys)  # of a prefetch nobody would hear
        self._register()
        return fetching.Plan(self.descriptor, keys, self.gain.known or ComputeCost())

    def _register(self) -> None:
        """A daemon that was restarted meanwhile learns of the descriptor."""
        self._keeper.use(lambda session: session.arena(self.descriptor))

    def lookup(self, keys: Keys) -> int:
        """The boundary that `match` would find now, in pages. Pins and refreshes nothing. Raises FlagMissing."""
        if not self._whole_or_nothing:
            return self._boundary(keys)
        permissions.require_reuse(self.descriptor)
        return len(keys) if self._boundary(keys) == len(keys) else 0

    def _boundary(self, keys: Keys) -> int:
        way = self._way
        if not way.session.alive:
            way = self._choose()
        try:
            return search(way, self._choose, lambda other: other.boundary(keys))
        except ValueError as error:
            raise no_key(error) from error

    def explain(self, keys: Keys, *, read_bytes: int | None = None) -> Explanation:
        """Whether these pages are best read here, pulled from a peer or computed: with path, numbers and reason.

        The daemon asks its peers what they have, and tells how quick its pulls from each were. `read_bytes` is how much
        will be read, where that is less than all (the selected blocks, for DSA). Pins and refreshes nothing. Raises
        CostUnknown before a cost was declared or observed.
        """
        _ = self.gain.cost  # before anybody is asked
        path = self.gain.paths.shared_memory
        begin = perf_counter()
        pages = self.lookup(keys)
        path.observe(0, max(perf_counter() - begin, 1e-9))
        return self.gain.explain(pages, self._offers(keys, pages), read_bytes=read_bytes)

    def _offers(self, keys: Keys, have: int) -> list[Offer]:
        if have == len(keys):
            return []
        try:
            self._register()
        except (Disconnected, DeadlineExceeded):
            return []
        found = fetching.offers(self._keeper, self.descriptor, keys, have)
        return [each for each in found if each.pages == len(keys) or not self._whole_or_nothing]

    def pin_pool(self, device: str = "cpu") -> Pinned:
        """Locks the segments that were read so far in memory, and registers them with `device`: "cpu" or "cuda".

        Each segment once: call it again when the arena has grown or the daemon was restarted. It ends with the client.
        Raises PinningRefused.
        """
        segments = list(self._choose().segments.values())
        pinned = pin(segments, device)
        if segments:
            measured = calibration.of_reading(segments[0].memory[: calibration.SHARED_BYTES])
            self.gain.local = MeasuredPath(PINNED_MEMORY, *measured)
        return pinned

    def status(self, keys: Keys) -> list[PageStatus]:
        """For each key whether it is present, being written, or absent and why. Pins and refreshes nothing.

        Only why a page is absent is asked of the daemon. Raises Disconnected.
        """
        if self._boundary(keys) == len(keys) and isinstance(self.descriptor.reuse, contract.AllPages):
            return [_STATUS[m.PRESENT]] * len(keys)
        found = self._keeper.use(lambda session: list(find(session, self.descriptor, keys)))
        return [status for answer in found for status in _statuses(answer)]

    def reserve(self, keys: Keys, *, parent: bytes = b"", wait: bool = True) -> Reservation:
        """Slots for the absent pages of a chain, all of them or none; use it in a `with`.

        `keys` starts at the root of a chain, unless `parent`, the key of a resident page, comes before it. Pages that
        are resident, or that somebody else is writing, are not among the result's. Raises ArenaFull, ParentMissing,
        BadRequest.

        Without `wait` they are only asked for: ask for the next pages, fill these, and by then the next are there.
        What the daemon refuses is then raised by the first use of the result.
        """
        check_keys(keys)
        if parent:
            check_keys((parent,))
        return self._keeper.use(lambda session: self._reserve(session, keys, parent, wait=wait))

    def branch(self, keys: Keys) -> Branch:
        """A context to fork: that of `keys`, all of them resident, or an empty one. It holds its pages until dropped.

        Takes them from a hit that is open, so that none is evicted before. Raises ParentMissing, FlagMissing.
        """
        permissions.require_branching(self.descriptor)
        return open_branch(self._origin, list(keys))

    def attach_branch(self, branch_id: int) -> Branch:
        """A published branch of this cache, by the id that whoever made it gave.

        Raises UnknownBranch, BadRequest, FlagMissing.
        """
        permissions.require_branching(self.descriptor)
        return attach_branch(self._origin, branch_id)

    def branches(self) -> list[BranchInfo]:
        """The published branches of this cache, by id."""
        return self._keeper.use(lambda session: listed(session, self._origin))

    def _reserve(self, session: Session, keys: Keys, parent: bytes, *, wait: bool) -> Reservation:
        reservation = Reservation(session, self.descriptor, keys, parent)
        try:
            reservation.begin()
            if wait:
                reservation.settle()
        except BaseException:
            reservation.abort()
            raise
        return reservation

    def _choose(self) -> Way:
        """The way through the session to read with."""
        session = self._keeper.reading
        if session is not self._way.session:
            self._way = way_to(session, self.descriptor)
        return self._way


def no_key(error: ValueError) -> BadRequest:
    """What is passed as keys is none."""
    return BadRequest(f"{error}: compute keys with the cache that they are for")


def check_keys(keys: Keys) -> None:
    """Raises BadRequest for what are no page keys."""
    try:
        b"".join(keys)  # no str
        right = set(map(len, keys)) <= {m.KEY_BYTES}
    except TypeError as error:
        raise BadRequest(
            f"keys must be a list of bytes: compute them with the cache that they are for ({error})"
        ) from None
    if not right:
        raise no_key(ValueError(f"a key has {m.KEY_BYTES} bytes"))


def _statuses(found: m.Found) -> Iterator[PageStatus]:
    owners = {position: name for name, positions in found.others.items() for position in positions}
    for position, state in enumerate(found.states):
        if state == m.OTHER_DESCRIPTOR:
            yield PageStatus("absent", f"belongs to descriptor {owners[position]}")
        else:
            yield _STATUS[state]
