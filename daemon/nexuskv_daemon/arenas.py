"""The shared-memory objects of one instance: made, handed out, given back.

Owns every object `/nexuskv-INSTANCE-data-N`, its descriptors and mapping, and is the only module that knows posix_ipc.
Knows nothing of what lies in a segment. `make` runs in a worker thread, everything else in the event loop.
"""

import contextlib
import logging
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import posix_ipc

from nexuskv.errors import ArenaFull, StartupError
from nexuskv_daemon.prefault import Warming

log = logging.getLogger(__name__)
SHM = Path("/dev/shm")
MODE = 0o600
"""Of every object: another uid gets at it through a descriptor that the daemon hands out, or not at all."""


class SegmentObject:
    """One object: `reader` is a descriptor opened read-only, `writer` one for reading and writing."""

    def __init__(self, name: str, nbytes: int) -> None:
        """Creates the object and reserves all its space. Raises OSError when the machine has not got that much."""
        self.name = name
        with contextlib.ExitStack() as undo:
            made = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=MODE, size=nbytes)
            undo.callback(posix_ipc.unlink_shared_memory, name)
            undo.callback(os.close, made.fd)
            # Without this a full tmpfs would show as a SIGBUS in whoever touches the page first.
            os.posix_fallocate(made.fd, 0, nbytes)
            opened = posix_ipc.SharedMemory(name, 0, read_only=True)
            undo.callback(os.close, opened.fd)
            self.warming = Warming(mmap.mmap(made.fd, nbytes))
            self.writer, self.reader = made.fd, opened.fd
            undo.pop_all()

    def discard(self) -> None:
        """Gives the memory back at once, also what clients still map. Only where nobody reads it any more."""
        self.warming.discard()
        self.remove()

    def remove(self) -> None:
        """Removes the name. The memory goes with the last client that maps it, so open hits stay whole."""
        with contextlib.suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_shared_memory(self.name)
        self.close()

    def close(self) -> None:
        """Lets go of the object; it stays."""
        self.warming.close()
        os.close(self.writer)
        os.close(self.reader)


class SegmentObjects:
    """All objects of an instance, by segment number."""

    def __init__(self, instance: str) -> None:
        self._prefix = f"/nexuskv-{instance}-data-"
        self._objects: dict[int, SegmentObject] = {}

    def make(self, number: int, nbytes: int) -> SegmentObject:
        """Creates segment `number`; `adopt` it in the event loop. Raises ArenaFull with the reason."""
        try:
            return SegmentObject(f"{self._prefix}{number}", nbytes)
        except (OSError, posix_ipc.Error) as error:
            raise ArenaFull(f"cannot make a segment of {nbytes} bytes: {error}") from error

    def adopt(self, number: int, made: SegmentObject) -> None:
        """Takes over what `make` returned."""
        self._objects[number] = made

    def descriptor(self, number: int, *, writable: bool) -> int:
        """The descriptor to hand out; it stays the daemon's."""
        made = self._objects[number]
        return made.writer if writable else made.reader

    def drop(self, number: int) -> None:
        """Removes one segment, in which no page is left."""
        self._objects.pop(number).discard()

    def close(self, *, keep: bool) -> None:
        """Removes all segments, or with `keep` leaves the objects where they are."""
        for made in self._objects.values():
            made.close() if keep else made.remove()
        self._objects.clear()

    def remove_orphans(self) -> None:
        """Removes what a dead daemon of this instance left; the caller holds its lock. Raises StartupError."""
        for name in self._left_behind():
            log.warning("removing %s, left by an instance that did not stop cleanly", name)
            try:
                posix_ipc.unlink_shared_memory(name)
            except posix_ipc.PermissionsError:
                raise StartupError(
                    f"{name} belongs to another user: remove it as that user, or choose another --instance"
                ) from None

    def _left_behind(self) -> Iterator[str]:
        ours = re.compile(re.escape(self._prefix[1:]) + r"[0-9]+")
        return (f"/{path.name}" for path in list(SHM.iterdir()) if ours.fullmatch(path.name))
