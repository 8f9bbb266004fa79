"""Named shared-memory objects of one instance: `/nexuskv-INSTANCE-KIND-NUMBER`.

Owns their names, creation and removal, and is the only module that knows posix_ipc. Knows nothing of what lies in one.
"""

import contextlib
import logging
import os
import re
from pathlib import Path

import posix_ipc

from nexuskv.errors import ArenaFull, StartupError
from nexuskv_daemon.instance import SHM
from nexuskv_daemon.own import MODE, refuse_foreign

BLOCK = 512
"""Bytes in the unit of st_blocks (stat(2))."""
SLACK = 2 << 20
"""What the kernel may take beyond an object's length: a huge page."""
log = logging.getLogger(__name__)


class Namespace:
    """The objects of one instance. The caller holds the instance's lock."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._lengths: dict[tuple[str, int], int] = {}
        self._pattern = re.compile(
            re.escape(f"nexuskv-{instance}-") + r"(data|index|touch|pins)-(0|[1-9][0-9]*)"
        )

    def create(self, kind: str, number: int, nbytes: int) -> int:
        """A new zeroed object of `nbytes`, its space reserved; returns a descriptor for reading and writing.

        Raises ArenaFull when the machine has not got that much.
        """
        name = self._name(kind, number)
        with contextlib.ExitStack() as undo:
            try:
                made = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=MODE, size=nbytes)
                undo.callback(posix_ipc.unlink_shared_memory, name)
                undo.callback(os.close, made.fd)
                # Without this a full tmpfs would show as a SIGBUS in whoever touches the page first.
                os.posix_fallocate(made.fd, 0, nbytes)
            except (OSError, posix_ipc.Error) as error:
                raise ArenaFull(f"cannot make {name} of {nbytes} bytes: {error}") from error
            undo.pop_all()
        self.expect(kind, number, nbytes)
        return made.fd

    def expect(self, kind: str, number: int, nbytes: int) -> None:
        """An object is to stay at `nbytes`, from now until it is removed."""
        self._lengths[kind, number] = nbytes

    def trim(self) -> None:
        """Cuts back what others made longer, of all objects that were made or expected here. For any thread."""
        for (kind, number), nbytes in list(self._lengths.items()):
            path = SHM / self._name(kind, number)[1:]
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                there = path.stat()
                if there.st_size > nbytes or there.st_blocks * BLOCK > nbytes + SLACK:
                    log.warning("%s is cut back to %d bytes: one of its clients made it longer", path, nbytes)
                    length = min(there.st_size, nbytes)
                    os.truncate(path, length + 1)  # memory past the end goes only when the length changes
                    os.truncate(path, length)

    def open(self, kind: str, number: int, *, writable: bool) -> int:
        """A descriptor of its own of an object that is there. Raises ArenaFull when descriptors run out."""
        name = self._name(kind, number)
        try:
            descriptor: int = posix_ipc.SharedMemory(name, 0, read_only=not writable).fd
        except (OSError, posix_ipc.Error) as error:
            raise ArenaFull(f"cannot open {name}: {error}") from error
        try:
            refuse_foreign(descriptor, SHM / name[1:])
        except StartupError:
            os.close(descriptor)
            raise
        return descriptor

    def remove(self, kind: str, number: int) -> None:
        """Removes the name, if it is there; the memory goes with the last mapping. Raises StartupError."""
        name = self._name(kind, number)
        self._lengths.pop((kind, number), None)
        try:
            posix_ipc.unlink_shared_memory(name)
        except posix_ipc.ExistentialError:
            return
        except posix_ipc.PermissionsError:
            raise StartupError(
                f"{name} belongs to another user: remove it as that user, or choose another --instance"
            ) from None

    def there(self, kind: str) -> list[int]:
        """Numbers of the objects of a kind, whoever made them."""
        found = (self._pattern.fullmatch(path.name) for path in list(SHM.iterdir()))
        return sorted(int(match[2]) for match in found if match and match[1] == kind)

    def allocated(self, kind: str) -> int:
        """Bytes of memory that the objects of a kind take."""
        total = 0
        for number in self.there(kind):
            with contextlib.suppress(FileNotFoundError):
                total += (SHM / self._name(kind, number)[1:]).stat().st_blocks * BLOCK
        return total

    @property
    def journal(self) -> Path:
        """Where the instance keeps what the objects themselves cannot say."""
        return SHM / f"nexuskv-{self._instance}-journal"

    @property
    def branches(self) -> Path:
        """Where the instance keeps which branches were published."""
        return SHM / f"nexuskv-{self._instance}-branches"

    def _name(self, kind: str, number: int) -> str:
        return f"/nexuskv-{self._instance}-{kind}-{number}"
