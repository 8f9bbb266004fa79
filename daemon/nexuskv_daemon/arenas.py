"""The data segments: made, handed out, given back.

Owns their descriptors and the daemon's mappings. Knows nothing of what lies in a segment. `make` runs in a worker
thread, everything else in the event loop.
"""

import contextlib
import logging
import mmap
import os

from nexuskv.errors import ArenaFull
from nexuskv_daemon.prefault import Warming
from nexuskv_daemon.shm import Namespace

log = logging.getLogger(__name__)
DATA = "data"


class SegmentObject:
    """One segment: `reader` is a descriptor opened read-only, `writer` one for reading and writing."""

    def __init__(self, namespace: Namespace, number: int, writer: int) -> None:
        """Takes over `writer`, also when it fails. Raises ArenaFull."""
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, writer)
            reader = namespace.open(DATA, number, writable=False)
            undo.callback(os.close, reader)
            try:
                self.warming = Warming(mmap.mmap(writer, 0))
            except OSError as error:
                raise ArenaFull(f"cannot map segment {number}: {error}") from error
            undo.pop_all()
        self.writer, self.reader = writer, reader

    def discard(self) -> None:
        """Gives the memory back at once, also what clients still map. Only where nobody reads it any more."""
        self.warming.discard()
        self.close()

    def close(self) -> None:
        """Lets go of the object; it stays."""
        self.warming.close()
        os.close(self.writer)
        os.close(self.reader)


class SegmentObjects:
    """All segments of an instance, by number."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._objects: dict[int, SegmentObject] = {}

    def make(self, number: int, nbytes: int) -> SegmentObject:
        """Creates segment `number`; `adopt` it in the event loop. Raises ArenaFull with the reason."""
        writer = self._namespace.create(DATA, number, nbytes)
        try:
            return SegmentObject(self._namespace, number, writer)
        except ArenaFull:
            self._namespace.remove(DATA, number)
            raise

    def take_over(self, number: int, nbytes: int) -> bool:
        """Opens a segment that an earlier daemon of this instance made. Raises ArenaFull.

        False when it has another length than it was made with: a client that may write it can cut it off.
        """
        writer = self._namespace.open(DATA, number, writable=True)
        there = os.fstat(writer).st_size
        if there != nbytes:
            log.warning("segment %d has %d bytes instead of %d", number, there, nbytes)
            os.close(writer)
            return False
        self._namespace.expect(DATA, number, nbytes)
        self.adopt(number, SegmentObject(self._namespace, number, writer))
        return True

    def adopt(self, number: int, made: SegmentObject) -> None:
        """Takes over what `make` returned."""
        self._objects[number] = made

    def descriptor(self, number: int, *, writable: bool) -> int:
        """The descriptor to hand out; it stays the daemon's."""
        made = self._objects[number]
        return made.writer if writable else made.reader

    def drop(self, number: int) -> None:
        """Removes one segment that nobody reads."""
        self._objects.pop(number).discard()
        self._namespace.remove(DATA, number)

    def close(self, *, keep: bool) -> None:
        """Lets go of all segments, and without `keep` removes their names. Who maps one may go on reading it."""
        for number, made in self._objects.items():
            made.close()
            if not keep:
                self._namespace.remove(DATA, number)
        self._objects.clear()
