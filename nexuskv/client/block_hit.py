"""Blocks of sparse pages that need not be here: of whole pages, of blocks that were pulled before, or pulled now.

Owns the order of the search, and the pins of what it found. How blocks are cut and named is the contract's affair
(`contract/blocks.py`), how they come from another host the daemon's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from nexuskv.client.blocks import Numbers, as_numbers, places
from nexuskv.client.fetching import Fetched
from nexuskv.client.hit import Hit, Keys, Page
from nexuskv.contract.blocks import Blocks, block_key, check_layer
from nexuskv.ipc.mapping import Array
from nexuskv.protocol.fetches import BlockName

Fetch = Callable[[list[BlockName]], Fetched]
"""Pulls blocks from another host."""
NOTHING = Fetched(0, 0, "", "")
ABSENT = "some of these blocks are not here: pull them with fetch=True, or compute them"


class Block(NamedTuple):
    """One block, and its scales where it is quantised; both in place and read-only."""

    data: Array
    scale: Array | None


class Matches(Protocol):
    """A cache, as far as pages are looked for in it."""

    def match(self, keys: Keys) -> Hit: ...


class BlockHit:
    """The blocks that were asked for, in order, pinned; none of them when not all could be had, and `reason` says why.

    Each is a read-only array (block_tokens, kv_heads, head_dim) in place. `fetched` is what came from another host for
    it. Close it as soon as they are read.
    """

    __slots__ = ("_blocks", "_hits", "_pins", "fetched", "reason")

    def __init__(
        self, blocks: Sequence[Block], hits: Sequence[Hit], pins: ExitStack, fetched: Fetched, reason: str
    ) -> None:
        self._blocks = blocks
        self._hits = hits
        self._pins = pins
        self.fetched = fetched
        self.reason = reason

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Array:
        """Block `index` of those asked for. Raises IndexError, Closed."""
        self._check()
        return self._blocks[index].data

    def __iter__(self) -> Iterator[Array]:
        return (self[index] for index in range(len(self)))

    @property
    def scales(self) -> list[Array]:
        """Of each block its scales, in place; nothing where these are not quantised. Raises Closed."""
        self._check()
        return [block.scale for block in self._blocks if block.scale is not None]

    def _check(self) -> None:
        for hit in self._hits:
            hit.check()

    def close(self) -> None:
        """Ends the pins. Idempotent; also right when the daemon is gone."""
        self._pins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Search:
    """Looks for blocks of one layer: `pages` has whole pages, `lone` those of one block each."""

    def __init__(
        self, blocks: Blocks, layer: int | None, pages: Matches, lone: Callable[[], Matches]
    ) -> None:
        """Raises BadRequest for a layer that is none."""
        self._blocks = blocks
        self._layer = layer
        self.layer = check_layer(blocks.parent, layer)
        """As block keys have it."""
        self._pages = pages
        self._lone = lone

    def find(self, wanted: Mapping[bytes, Numbers], fetch: Fetch | None) -> BlockHit:
        """Pins what is here, after a pull of what is not if there is a `fetch`. Raises BadRequest."""
        names = [
            BlockName(page, each) for page, numbers in wanted.items() for each in as_numbers(numbers).tolist()
        ]
        with ExitStack() as pins:
            hits = [pins.enter_context(self._pages.match([page])) for page in wanted]
            whole = {page.key: page for hit in hits for page in hit}
            loose = {self._key(name): name for name in names if name.page not in whole}
            fetched, alone = NOTHING, dict[bytes, Page]()
            if loose:
                hit, fetched = self._pin(loose, fetch, pins)
                if len(hit) < len(loose):
                    return BlockHit((), (), ExitStack(), fetched, fetched.reason or ABSENT)
                hits.append(hit)
                alone = {page.key: page for page in hit}
            found = [
                self._of_page(whole[name.page], name.number) if name.page in whole
                else self._cut(alone[self._key(name)], (0,))
                for name in names
            ]  # fmt: skip
            return BlockHit(found, hits, pins.pop_all(), fetched, "")

    def _key(self, name: BlockName) -> bytes:
        return block_key(name.page, self.layer, name.number)

    def _pin(
        self, loose: Mapping[bytes, BlockName], fetch: Fetch | None, pins: ExitStack
    ) -> tuple[Hit, Fetched]:
        """What is here of blocks that were pulled; what is held does not go while others come."""
        cache, keys = self._lone(), list(loose)
        hit = pins.enter_context(cache.match(keys))
        if len(hit) == len(keys) or fetch is None:
            return hit, NOTHING
        fetched = fetch([loose[key] for key in keys[len(hit) :]])
        return pins.enter_context(cache.match(keys)), fetched

    def _of_page(self, page: Page, number: int) -> Block:
        ((_, place),) = places(self._blocks.parent, (page,), (number,), self._layer)
        return self._cut(page, (place,) if self._layer is None else (self._layer, place))

    def _cut(self, page: Page, at: tuple[int, ...]) -> Block:
        scale = self._blocks.scale
        return Block(page[self._blocks.name][at], None if scale is None else page[scale][at])
