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
        self._own: set[bytes] = set()

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
        if pins.unreadable(self.segments):
            self._keep_readable(pins)
        return Hit(self, keys, start, pins)

    def boundary(self, keys: Keys) -> int:
        """The boundary that `match` would find, in pages. Raises Moved."""
        reader = self.session.reader
        if reader is None:
            raise _given_up()
        stop = reader.lookup(keys) if self._chained else self._usable(reader, keys).stop
        return stop if not stop or keys[0] in self._own or self._are_own(reader, keys[:stop]) else 0

    def _are_own(self, reader: Reader, keys: Keys) -> bool:
        """Whether pages lie in this descriptor's arena: the index finds those of the tenant's others too.

        Keys of a chain have one root, so that one page tells for all; it is looked at once.
        """
        segment = next((found for found in map(reader.where, keys) if found is not None), None)
        if segment is None:
            return False
        with contextlib.suppress(Disconnected, DeadlineExceeded):
            self.session.map_segments(self.descriptor, (segment,))
        if segment in self.segments:
            self._own.add(keys[0])
        return segment in self.segments

    def _usable(self, reader: Reader, keys: Keys) -> range:
        present = [state == PRESENT for state in reader.status(keys)]
        return contract.usable(self.descriptor.reuse, present, self.descriptor.page_tokens)

    def _pin_some(self, reader: Reader, keys: Keys) -> tuple[int, Pins]:
        """For kinds that need not every page: look, then pin; what was retired between is looked for anew."""
        while True:
            chosen = self._usable(reader, keys)
            pins = reader.pin(keys[chosen.start : chosen.stop])
            if len(pins) == len(chosen):
                return chosen.start, pins
            pins.release()

    def _keep_readable(self, pins: Pins) -> None:
        """Maps what is not mapped yet; pages that cannot be, or that are of another descriptor, are given back.

        Raises Disconnected when it finds that the connection ended: a new session may do better.
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
        if unreadable := pins.unreadable(self.segments):
            pins.truncate(len(pins) - unreadable if self._chained else 0)


def _given_up() -> Moved:
    return Moved("another thread found that the daemon was restarted: match again")
