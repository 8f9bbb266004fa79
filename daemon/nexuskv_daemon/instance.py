"""The one daemon of an instance name on this host.

Owns the lock that makes it the one: an flock on `/dev/shm/nexuskv-INSTANCE-lock`, which the kernel drops when its
holder dies, however it dies. Shared memory is where the lock must be, since that is what it guards.
"""

import fcntl
import os
import re
from pathlib import Path

from nexuskv.errors import StartupError

SHM = Path("/dev/shm")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class InstanceLock:
    """Held from construction until `release`. Raises StartupError when another daemon holds it."""

    def __init__(self, instance: str, directory: Path = SHM) -> None:
        if not _NAME.fullmatch(instance):
            raise StartupError(f"instance name {instance!r}: use 1 to 64 of [A-Za-z0-9._-]")
        self._path = directory / f"nexuskv-{instance}-lock"
        self._descriptor = self._acquire(instance)

    def release(self) -> None:
        """Lets another daemon have the name."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _acquire(self, instance: str) -> int:
        while True:
            descriptor = self._open(instance)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise StartupError(
                    f"instance {instance!r} runs already: stop it, or choose another --instance and --socket"
                ) from None
            if self._still_there(descriptor):
                return descriptor
            os.close(descriptor)  # its holder removed it between our open and our lock

    def _open(self, instance: str) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except PermissionError:
            raise StartupError(
                f"instance {instance!r} belongs to another user: choose another --instance"
            ) from None
        except OSError as error:
            raise StartupError(
                f"cannot lock {self._path}: {error.strerror}; remove what stands there, or choose another --instance"
            ) from error

    def _still_there(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False
