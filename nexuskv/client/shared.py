"""Hits from the shared index: no message and no system call, also while the daemon is stopped or dead.

Owns the choice of the pages to pin and the mapping of the segments they lie in. The pinning is the C core's.
"""

from __future__ import annotations

import contextlib

from nexuskv import contract
from nexuskv.client.hit import Hit, Keys
from nexuskv.client.session import Session
from nexuskv.contract import AllPages, Descriptor
from nexuskv.errors import DeadlineExceeded, Disconnected
from nexuskv.native import PRESENT, Moved, Pins, Reader


class SharedWay:
    """One descriptor's pages in one session; `segments` are those of its arena that are mapped."""

    def __init__(self, session: Session, descriptor: Descriptor) -> None:
        self.session = session
        self.descriptor = descriptor
        self.segments = session.readable[session.arena(descriptor)]
        self._chained = type(descriptor.reuse) is AllPages
        self.wire = session.wire

    def match(self, keys: Keys) -> Hit:
        """Pins the longest restorable boundary. Raises Moved, PinsFull."""
        # Asked of the session each time, so that the reader's lock goes when the session is given up.
        reader = self.session.reader
        if reader is None:
            raise _given_up()
        start = 0
        if self._chained:
            pins = reader.pin(keys)
        else:
            start, pins = self._pin_some(reader, keys)
        if pins.unreadable(self.segments) and (unreadable := self._map(pins)):
            pins.truncate(len(pins) - unreadable if self._chained else 0)
        return Hit(self, keys, start, pins)

    def pin(self, keys: Keys) -> Pins:
        """Pins the leading pages of `keys` that are there and can be read here. Raises Moved, PinsFull."""
        reader = self.session.reader
        if reader is None:
            raise _given_up()
        pins = reader.pin(keys)
        if pins.unreadable(self.segments) and (unreadable := self._map(pins)):
            pins.truncate(len(pins) - unreadable)
        return pins

    def glance(self, keys: Keys) -> bytes:
        """A byte a page: PRESENT, or why not. Other descriptors' pages count as present. Raises Moved."""
        reader = self.session.reader
        if reader is None:
            raise _given_up()
        return reader.status(keys)

    def present(self, keys: Keys) -> bytes:
        """A byte a page, 1 where it is there. Pins nothing. Raises Moved."""
        reader = self.session.reader
        if reader is None:
            raise _given_up()
        if self._chained:
            run = self.boundary(keys)
            return b"\x01" * run + bytes(len(keys) - run)
        return bytes(self._present(reader, keys))

    def boundary(self, keys: Keys) -> int:
        """The boundary that `match` would find, in pages. Raises Moved."""
        reader = self.session.reader
        if reader is None:
            raise _given_up()
        if not self._chained:
            return self._usable(reader, keys).stop
        stop = reader.lookup(keys)
        if stop and not (self._is_own(reader, keys[0]) and self._is_own(reader, keys[stop - 1])):
            return next((at for at, key in enumerate(keys[:stop]) if not self._is_own(reader, key)), stop)
        return stop

    def _is_own(self, reader: Reader, key: bytes) -> bool:
        """Whether a page lies in this descriptor's arena: the index finds those of the tenant's others too."""
        segment = reader.where(key)
        if segment is not None and segment not in self.segments:
            with contextlib.suppress(Disconnected, DeadlineExceeded):
                self.session.map_segments(self.descriptor, (segment,))
        return segment in self.segments

    def _usable(self, reader: Reader, keys: Keys) -> range:
        return contract.usable(
            self.descriptor.reuse, self._present(reader, keys), self.descriptor.page_tokens
        )

    def _present(self, reader: Reader, keys: Keys) -> list[bool]:
        states = zip(reader.status(keys), keys, strict=True)
        return [state == PRESENT and self._is_own(reader, key) for state, key in states]

    def _pin_some(self, reader: Reader, keys: Keys) -> tuple[int, Pins]:
        """For kinds that need not every page: look, then pin; what was retired between is looked for anew."""
        while True:
            chosen = self._usable(reader, keys)
            pins = reader.pin(keys[chosen.start : chosen.stop])
            if len(pins) == len(chosen):
                return chosen.start, pins
            pins.release()

    def _map(self, pins: Pins) -> int:
        """Maps what is not mapped yet. How many pages, the last ones, cannot be read all the same.

        They are another descriptor's, or the daemon is away. Raises Disconnected when it finds that the connection
        ended: a new session may do better.
        """
        connected = self.session.alive
        try:
            self.session.map_segments(self.descriptor, pins.segments())
        except Disconnected:
            if connected:
                pins.release()
                raise
        except DeadlineExceeded:
            pass
        return pins.unreadable(self.segments)


def _given_up() -> Moved:
    return Moved("another thread found that the daemon was restarted: match again")
