"""A hit: pages pinned for reading, in place.

Owns the pins until it is closed. An array on a page is a view of shared memory: while the hit is open nobody changes
those bytes, after it the slot may hold another page.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from nexuskv.client.pinned import Pinned
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.errors import Closed
from nexuskv.ipc.mapping import Array, MappedSegment


class Handle(msgspec.Struct, frozen=True, gc=False):
    """Where a page lies: `length` bytes at `offset` of a segment."""

    segment: int
    offset: int
    length: int


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

    __slots__ = ("_descriptor", "_keys", "_open", "_pins", "_session", "start")

    def __init__(
        self, session: Session, descriptor: Descriptor, keys: Sequence[bytes], pinned: Pinned
    ) -> None:
        self._session = session
        self._descriptor = descriptor
        self._keys = keys
        self.start, self._pins = pinned
        self._open = True

    def __len__(self) -> int:
        return len(self._pins)

    def __getitem__(self, index: int) -> Page:
        """Page `index` of the hit. Raises IndexError, Closed."""
        self.check()
        index = range(len(self._pins))[index]
        segment, offset, *_ = self._pins[index]
        mapped = self._session.readable[segment]
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
        return self.stop * self._descriptor.page_tokens

    @property
    def handles(self) -> list[Handle]:
        """Where each page lies, for engines that read through other means than numpy."""
        self.check()
        return [Handle(*extent) for extent in self._pins.extents()]

    def check(self) -> None:
        """Raises Closed after `close` or that of the client, and in a forked child."""
        if not self._open:
            raise Closed("this hit is closed, its pages may hold something else by now: match again")
        self._session.check()

    def close(self) -> None:
        """Ends the pins. Idempotent; also right when the daemon is gone."""
        if self._open:
            self._open = False
            self._pins.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # The pins end by themselves, whichever way they were taken.
        if getattr(self, "_open", False) and len(self._pins):
            warnings.warn("a hit was dropped without close(): use it in a with", ResourceWarning, 2, self)
