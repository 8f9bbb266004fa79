"""A hit: pages pinned for reading, in place.

Owns the pins until it is closed. An array on a page is a view of shared memory: while the hit is open nobody changes
those bytes, after it the slot may hold another page.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt

from nexuskv.client import blocks
from nexuskv.client.blocks import Numbers
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.errors import Closed
from nexuskv.ipc.mapping import Array, MappedSegment
from nexuskv.native.rows import Extent
from nexuskv.native.rows import Page as NativePage

Keys = list[bytes] | tuple[bytes, ...]
"""Page keys, 32 bytes each."""


class Handle(msgspec.Struct, frozen=True, gc=False):
    """Where a page lies: `length` bytes at `offset` of a segment."""

    segment: int
    offset: int
    length: int


class Page(msgspec.Struct, eq=False):
    """One page of a hit; `page[name]` is a read-only array of that tensor. Unusable once the hit is closed."""

    _hit: Hit
    key: bytes
    position: int
    _segment: MappedSegment
    _slot: int

    def __getitem__(self, name: str) -> Array:
        self._hit.check()
        return self._segment.tensor(name, self._slot)

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """All bytes of the page, uint8[page_bytes], read-only."""
        self._hit.check()
        page: npt.NDArray[np.uint8] = self._segment.pages[self._slot]
        return page

    def blocks(self, wanted: Numbers, *, layer: int | None = None) -> list[Array]:
        """As `Hit.blocks`, of this page alone."""
        return blocks.select(self._hit.descriptor, (self,), wanted, layer)


class PagePins(Protocol):
    """Pinned pages in order, like the C core's `Pins`. `release` is idempotent; items raise Closed after it."""

    @property
    def closed(self) -> bool: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> NativePage: ...

    def extents(self) -> list[Extent]: ...

    def release(self) -> None: ...


class Source(Protocol):
    """Where a hit's pages come from: a descriptor's pages in a session, in segments mapped by number."""

    session: Session
    descriptor: Descriptor
    segments: dict[int, MappedSegment]


class Hit:
    """A sequence of pinned pages: `keys[start]` to `keys[stop - 1]`. Close it as soon as the pages are read."""

    __slots__ = ("_keys", "_pins", "_source", "start")

    def __init__(self, source: Source, keys: Keys, start: int, pins: PagePins) -> None:
        self._source = source
        self._keys = keys
        self._pins = pins
        self.start = start

    def __len__(self) -> int:
        return len(self._pins)

    def __getitem__(self, index: int) -> Page:
        """Page `index` of the hit. Raises IndexError, Closed."""
        if index < 0 and (index := index + len(self._pins)) < 0:
            raise IndexError(f"{len(self._pins) - index} pages before the end of a hit of {len(self._pins)}")
        segment, offset, _, _ = self._pins[index]
        mapped = self._source.segments.get(segment)
        if mapped is None:  # the client was closed
            self.check()
            raise Closed("the segment of this page is gone: match again")
        position = self.start + index
        return Page(self, self._keys[position], position, mapped, offset // mapped.slot_bytes)

    def __iter__(self) -> Iterator[Page]:
        return (self[index] for index in range(len(self)))

    @property
    def stop(self) -> int:
        """The restorable boundary, in pages of the keys that were asked for."""
        return self.start + len(self._pins)

    @property
    def tokens(self) -> int:
        """The restorable boundary, in tokens: the engine goes on computing from there."""
        page_tokens = self._source.descriptor.page_tokens
        if not self._pins:
            return self.start * page_tokens
        _, _, _, in_last = self._pins[
            len(self._pins) - 1
        ]  # fewer than a page has only at the end of a branch
        return (self.stop - 1) * page_tokens + in_last

    @property
    def handles(self) -> list[Handle]:
        """Where each page lies, for engines that read through other means than numpy."""
        self.check()
        return [Handle(*extent) for extent in self._pins.extents()]

    @property
    def descriptor(self) -> Descriptor:
        """What the pages hold."""
        return self._source.descriptor

    def blocks(self, wanted: Numbers, *, layer: int | None = None) -> list[Array]:
        """Just these blocks of sparse pages, in this order: read-only views (block_tokens, kv_heads, head_dim).

        `wanted` are the selector's numbers (`client.blocks` says how blocks are numbered), `layer` is needed where a
        page has several. No byte of another block is touched. Raises BadRequest for a number that is not there, Closed.
        """
        self.check()
        return blocks.select(self.descriptor, list(self), wanted, layer)

    def block_numbers(self, *, layer: int | None = None) -> list[int]:
        """The numbers of all blocks of these pages, page by page. Raises BadRequest where there are none, Closed."""
        self.check()
        return [int(number) for number in blocks.numbers(self.descriptor, list(self), layer)]

    def check(self) -> None:
        """Raises Closed after `close` or that of the client, and in a forked child."""
        if self._pins.closed:
            raise Closed("this hit is closed, its pages may hold something else by now: match again")
        self._source.session.check()

    def close(self) -> None:
        """Ends the pins. Idempotent; also right when the daemon is gone."""
        self._pins.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pins.release()
