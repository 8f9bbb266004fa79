"""Hits that are asked of the daemon: to compare with those from shared memory, and to find faults.

Owns the splitting of long calls into messages, and the numbers under which the daemon knows the pins.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from nexuskv import contract
from nexuskv.client.hit import Hit, Keys
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.errors import Closed
from nexuskv.native.rows import Extent, Page
from nexuskv.protocol import messages as m
from nexuskv.protocol.messages import SLOT_BITS, SLOT_MASK


class AskedPins:
    """What one or several `Pin` requests granted; answers like the C core's `Pins`."""

    __slots__ = ("_handles", "_hits", "_lacking", "_way", "closed")

    def __init__(self, way: AskedWay, granted: m.Pinned | None = None) -> None:
        self._way = way
        self._hits = [granted.hit] if granted is not None and granted.hit else []
        self._handles: list[int] = granted.handles if granted is not None else []
        self._lacking = granted.lacking if granted is not None else 0
        self.closed = False

    def add(self, granted: m.Pinned) -> None:
        """Takes over one more grant; its pages follow those that are there."""
        if granted.hit:
            self._hits.append(granted.hit)
            self._handles += granted.handles
            self._lacking = granted.lacking

    def __len__(self) -> int:
        return len(self._handles)

    def __getitem__(self, index: int, /) -> Page:
        """Segment, offset, length and tokens of one page. Raises IndexError; Closed after `release`."""
        if self.closed:
            raise Closed("this hit is closed, its pages may hold something else by now: match again")
        lacking = self._lacking if index == len(self._handles) - 1 else 0
        return *self._extent(self._handles[index]), self._way.page_tokens - lacking

    def extents(self) -> list[Extent]:
        """Segment, offset and length of each page."""
        return [self._extent(handle) for handle in self._handles]

    def release(self) -> None:
        """Ends the pins, as far as the daemon is concerned with the next call: a message for each would cost one more.

        Also right when the daemon is gone, since they went with it.
        """
        hits, self._hits, self._handles = self._hits, [], []
        self.closed = True
        if hits:
            self._way.session.released.extend(hits)

    def __del__(self) -> None:
        if self._hits and self._way.session.alive:
            self._way.session.released.extend(self._hits)
            warnings.warn("a hit was dropped without close(): use it in a with", ResourceWarning, 2, self)

    def _extent(self, handle: int) -> Extent:
        segment, way = handle >> SLOT_BITS, self._way
        return segment, (handle & SLOT_MASK) * way.segments[segment].slot_bytes, way.page_bytes


class AskedWay:
    """One descriptor's pages in one session; `segments` are those of its arena that are mapped."""

    def __init__(self, session: Session, descriptor: Descriptor) -> None:
        self.session = session
        self.descriptor = descriptor
        self.wire = session.wire
        self._arena = session.arena(descriptor)
        self.segments = session.readable[self._arena]
        self.page_bytes = descriptor.page_bytes
        self.page_tokens = descriptor.page_tokens

    def match(self, keys: Keys) -> Hit:
        """Pins the longest restorable boundary. Raises Disconnected, DeadlineExceeded."""
        if len(keys) > m.MAX_KEYS:
            return self._match_long(keys)
        granted = self._pin(keys, whole=False)
        return Hit(self, keys, granted.start, AskedPins(self, granted))

    def boundary(self, keys: Keys) -> int:
        """The boundary that `match` would find, in pages. Raises Disconnected, DeadlineExceeded."""
        if len(keys) > m.MAX_KEYS:
            return self._usable(keys).stop
        request = m.Measure(self.session.number(), self._arena, list(keys))
        return self.session.call(request, m.Measured).stop

    def present(self, keys: Keys) -> bytes:
        """A byte a page, 1 where it is there. Pins nothing. Raises Disconnected, DeadlineExceeded."""
        found = b"".join(answer.states for answer in find(self.session, self.descriptor, keys))
        return bytes(state == m.PRESENT for state in found)

    def pin_all(self, keys: Keys, chosen: range) -> AskedPins | None:
        """Pins the `chosen` ones of `keys`, or none when one is gone. Raises Disconnected, DeadlineExceeded."""
        pins = AskedPins(self)
        with contextlib.ExitStack() as undo:
            undo.callback(pins.release)
            for at in range(chosen.start, chosen.stop, m.MAX_KEYS):
                pins.add(self._pin(keys[at : min(at + m.MAX_KEYS, chosen.stop)], whole=True))
            if len(pins) != len(chosen):
                return None
            undo.pop_all()
        return pins

    def _usable(self, keys: Keys) -> range:
        return contract.usable(self.descriptor.reuse, self.present(keys), self.descriptor.page_tokens)

    def _match_long(self, keys: Keys) -> Hit:
        """More keys than a message takes: look first, then pin just those; what went meanwhile is looked for anew."""
        while True:
            chosen = self._usable(keys)
            pins = self.pin_all(keys, chosen)
            if pins is not None:
                return Hit(self, keys, chosen.start, pins)

    def _pin(self, keys: Keys, *, whole: bool) -> m.Pinned:
        session = self.session
        request = m.Pin(session.number(), self._arena, list(keys), whole, session.take_released())
        return session.call(request, m.Pinned)


def find(session: Session, descriptor: Descriptor, keys: Keys) -> Iterator[m.Found]:
    """What the daemon knows of each key, in as many answers as messages were needed."""
    for at in range(0, len(keys), m.MAX_KEYS):
        request = m.Lookup(session.number(), session.arena(descriptor), list(keys[at : at + m.MAX_KEYS]))
        yield session.call(request, m.Found)
