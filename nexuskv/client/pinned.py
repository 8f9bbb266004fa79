"""Two ways to pages: through the shared index, which asks nobody, or by asking the daemon.

Owns the choice of the pages to pin and the mapping of the segments they lie in. Both ways answer alike, so caches and
hits need not know which one serves them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from nexuskv import contract
from nexuskv.client.session import SLOT_BITS, SLOT_MASK, Session
from nexuskv.contract import AllPages, Descriptor
from nexuskv.errors import DeadlineExceeded, Disconnected
from nexuskv.native import Moved, Pins, Reader
from nexuskv.protocol import messages as m

PRESENT = 4
"""Of the C core's presence states (`nexuskv.h`, enum nx_presence)."""

Place = tuple[int, int, int, int, int]
"""Segment, byte offset in it, bytes, tokens, arena."""


class PagePins(Protocol):
    """Pinned pages in order, as the C core's `Pins` gives them; `release` is idempotent."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Place: ...

    def extents(self) -> list[tuple[int, int, int]]: ...

    def release(self) -> None: ...


class Pinned(NamedTuple):
    """Pins of `keys[start:start + len(pins)]`."""

    start: int
    pins: PagePins


class SharedWay:
    """Reads the index in shared memory: no message, no system call, also while the daemon is stopped or dead."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _reader(self) -> Reader:
        """The session's own, so that its lock goes when the session is given up. Raises Moved after that."""
        reader = self._session.reader
        if reader is None:
            raise Moved("another thread found that the daemon was restarted: match again")
        return reader

    def pin(self, descriptor: Descriptor, keys: Sequence[bytes]) -> Pinned:
        """Pins the longest restorable boundary. Raises Moved, PinsFull."""
        start, pins = self._restorable(descriptor, keys)
        for segment in pins.segments():
            mapped = self._session.readable.get(segment)
            if mapped is None or mapped.digest != descriptor.digest:
                self._keep_readable(descriptor, pins)
                break
        return Pinned(start, pins)

    def boundary(self, descriptor: Descriptor, keys: Sequence[bytes]) -> int:
        """The boundary that `pin` would find, in pages. Raises Moved."""
        if type(descriptor.reuse) is AllPages:
            return self._reader.lookup(keys)
        return contract.usable(descriptor.reuse, self._states(keys), descriptor.page_tokens).stop

    def _states(self, keys: Sequence[bytes]) -> list[bool]:
        return [state == PRESENT for state in self._reader.status(keys)]

    def _restorable(self, descriptor: Descriptor, keys: Sequence[bytes]) -> tuple[int, Pins]:
        if type(descriptor.reuse) is AllPages:
            return 0, self._reader.pin(keys)
        while True:  # what was retired between the look and the pin is looked for anew
            chosen = contract.usable(descriptor.reuse, self._states(keys), descriptor.page_tokens)
            pins = self._reader.pin(keys[chosen.start : chosen.stop])
            if len(pins) == len(chosen):
                return chosen.start, pins
            pins.release()

    def _keep_readable(self, descriptor: Descriptor, pins: Pins) -> None:
        """Maps what is not mapped yet; pages that cannot be, or that are of another descriptor, are given back."""
        with contextlib.suppress(Disconnected, DeadlineExceeded):
            self._session.map_segments(descriptor, pins.segments())
        segments = self._session.readable
        for index in range(len(pins)):
            mapped = segments.get(pins[index][0])
            if mapped is None or mapped.digest != descriptor.digest:
                pins.truncate(index if type(descriptor.reuse) is AllPages else 0)
                return


class AskedPins:
    """What one or several `Pin` requests granted."""

    def __init__(self, session: Session, descriptor: Descriptor) -> None:
        self._session = session
        self._arena = session.arena(descriptor)
        self._length = descriptor.page_bytes
        self._tokens = descriptor.page_tokens
        self._hits: list[int] = []
        self._handles: list[int] = []

    def add(self, granted: m.Pinned) -> None:
        """Takes over one more grant; its pages follow those that are there."""
        if granted.hit:
            self._hits.append(granted.hit)
            self._handles += granted.handles

    def __len__(self) -> int:
        return len(self._handles)

    def __getitem__(self, index: int, /) -> Place:
        return *self._extent(self._handles[index]), self._tokens, self._arena

    def extents(self) -> list[tuple[int, int, int]]:
        """Segment, offset and length of each page."""
        return [self._extent(handle) for handle in self._handles]

    def release(self) -> None:
        """Ends the pins; also right when the daemon is gone, since they went with it."""
        hits, self._hits = self._hits, []
        if not hits or not self._session.alive:
            return
        try:
            self._session.tell(m.Release(0, hits))
        except Disconnected:
            return
        except DeadlineExceeded:
            self._session.orphan(m.Release(0, hits))

    def __del__(self) -> None:
        if self._hits and self._session.alive:
            self._session.orphan(m.Release(0, self._hits))

    def _extent(self, handle: int) -> tuple[int, int, int]:
        segment = handle >> SLOT_BITS
        return segment, (handle & SLOT_MASK) * self._session.readable[segment].slot_bytes, self._length


class AskedWay:
    """Asks the daemon for each hit: to compare, and to find faults."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pin(self, descriptor: Descriptor, keys: Sequence[bytes]) -> Pinned:
        """Pins the longest restorable boundary. Raises Disconnected, DeadlineExceeded."""
        pins = AskedPins(self._session, descriptor)
        if len(keys) > m.MAX_KEYS:
            return self._pin_long(descriptor, keys)
        granted = self._ask(descriptor, keys, whole=False)
        pins.add(granted)
        return Pinned(granted.start, pins)

    def boundary(self, descriptor: Descriptor, keys: Sequence[bytes]) -> int:
        """The boundary that `pin` would find, in pages. Raises Disconnected."""
        if len(keys) > m.MAX_KEYS:
            return self._usable(descriptor, keys).stop
        session = self._session
        request = m.Measure(session.number(), session.arena(descriptor), list(keys))
        return session.call(request, m.Measured).stop

    def _usable(self, descriptor: Descriptor, keys: Sequence[bytes]) -> range:
        found = b"".join(answer.states for answer in self._session.find(descriptor, keys))
        present = [state == m.PRESENT for state in found]
        return contract.usable(descriptor.reuse, present, descriptor.page_tokens)

    def _pin_long(self, descriptor: Descriptor, keys: Sequence[bytes]) -> Pinned:
        """More keys than a message takes: look first, then pin just those; what went meanwhile is looked for anew."""
        while True:
            chosen = self._usable(descriptor, keys)
            pins = AskedPins(self._session, descriptor)
            for at in range(chosen.start, chosen.stop, m.MAX_KEYS):
                pins.add(self._ask(descriptor, keys[at : min(at + m.MAX_KEYS, chosen.stop)], whole=True))
            if len(pins) == len(chosen):
                return Pinned(chosen.start, pins)
            pins.release()

    def _ask(self, descriptor: Descriptor, keys: Sequence[bytes], *, whole: bool) -> m.Pinned:
        session = self._session
        request = m.Pin(session.number(), session.arena(descriptor), list(keys), whole)
        return session.call(request, m.Pinned)


Way = SharedWay | AskedWay
