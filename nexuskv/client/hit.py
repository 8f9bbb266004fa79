"""A hit: pages pinned for reading, in place.

Owns the pins until it is closed. An array on a page is a view of shared memory: while the hit is open nobody changes
those bytes, after it the slot may hold another page.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.errors import Closed, DeadlineExceeded, Disconnected
from nexuskv.ipc.mapping import Array, MappedSegment
from nexuskv.protocol import messages as m

SLOT_BITS = 32
SLOT_MASK = (1 << SLOT_BITS) - 1


class Handle(msgspec.Struct, frozen=True, gc=False):
    """Where a page lies: `length` bytes at `offset` of a segment."""

    segment: int
    offset: int
    length: int


class Part(NamedTuple):
    """What one message pinned: the daemon's number of it, and wire handles of pages from `start` on."""

    hit: int
    start: int
    handles: list[int]


class Page:
    """One page of a hit; `page[name]` is a read-only array of that tensor. Unusable once the hit is closed."""

    __slots__ = ("_hit", "_segment", "_slot", "key", "position")

    def __init__(self, hit: Hit, key: bytes, position: int, segment: MappedSegment, slot: int) -> None:
        self._hit = hit
        self._segment = segment
        self._slot = slot
        self.key = key
        self.position = position

    def __getitem__(self, name: str) -> Array:
        self._hit.check()
        return self._segment.tensor(name, self._slot)

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """All bytes of the page, uint8[page_bytes], read-only."""
        self._hit.check()
        return self._segment.page(self._slot)


class Hit:
    """A sequence of pinned pages: `keys[start]` to `keys[stop - 1]`. Close it as soon as the pages are read."""

    def __init__(
        self, session: Session, descriptor: Descriptor, keys: Sequence[bytes], parts: list[Part]
    ) -> None:
        self._session = session
        self._descriptor = descriptor
        self._keys = keys
        self._open = True
        self._hits: list[int] = []
        self._handles: list[int] = []
        self.start = 0
        for part in parts:
            self.extend(part)

    def extend(self, part: Part) -> None:
        """Takes over what one more message pinned; it follows what is there."""
        if not part.hit:
            return
        if not self._handles:
            self.start = part.start
        self._hits.append(part.hit)
        self._handles += part.handles

    def __len__(self) -> int:
        return len(self._handles)

    def __getitem__(self, index: int) -> Page:
        """Page `index` of the hit. Raises IndexError, Closed."""
        self.check()
        handle = self._handles[index]
        position = self.start + index % len(self._handles)
        segment = self._session.readable[handle >> SLOT_BITS]
        return Page(self, self._keys[position], position, segment, handle & SLOT_MASK)

    def __iter__(self) -> Iterator[Page]:
        return (self[index] for index in range(len(self)))

    @property
    def stop(self) -> int:
        """The restorable boundary, in pages of the keys that were asked for."""
        return self.start + len(self._handles)

    @property
    def tokens(self) -> int:
        """The restorable boundary, in tokens: the engine goes on computing from there."""
        return self.stop * self._descriptor.page_tokens

    @property
    def handles(self) -> list[Handle]:
        """Where each page lies, for engines that read through other means than numpy."""
        self.check()
        segments, length = self._session.readable, self._descriptor.page_bytes
        return [
            Handle(h >> SLOT_BITS, (h & SLOT_MASK) * segments[h >> SLOT_BITS].slot_bytes, length)
            for h in self._handles
        ]

    def check(self) -> None:
        """Raises Closed after `close` or that of the client, and in a forked child."""
        if not self._open:
            raise Closed("this hit is closed, its pages may hold something else by now: match again")
        self._session.check()

    def close(self) -> None:
        """Ends the pins. Idempotent; also right when the daemon is gone, since its pins went with it."""
        if not self._open:
            return
        self._open = False
        if self._hits and self._session.alive:
            try:
                self._session.tell(m.Release(0, self._hits))
            except Disconnected:
                return
            except DeadlineExceeded:
                self._session.orphan(m.Release(0, self._hits))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._open and self._hits and self._session.alive:
            self._session.orphan(m.Release(0, self._hits))
            warnings.warn(
                "a hit was dropped without close(): use it in a with", ResourceWarning, 2, source=self
            )
