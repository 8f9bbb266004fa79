"""Files and objects in a folder where everybody may make some: only this user's own are read or written.

Owns that question. `/dev/shm` has the sticky bit, so nobody can take this user's names away; but whoever was there
first could have prepared what a daemon of another user then takes over.
"""

import contextlib
import os
import stat
from pathlib import Path

from nexuskv.errors import StartupError

MODE = 0o600
"""Of everything: another uid gets at it through a descriptor that the daemon hands out, or not at all."""


def refuse_foreign(descriptor: int, path: Path) -> None:
    """Raises StartupError for what this user did not make, or what others may open: it may hold anything."""
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != MODE or not stat.S_ISREG(found.st_mode):
        raise StartupError(
            f"{path} is not this daemon's: uid {found.st_uid}, mode {stat.filemode(found.st_mode)}, where a file of "
            f"uid {os.geteuid()} and mode {MODE:o} should be; find out who made it and remove it, or choose another "
            "--instance"
        )


def read(path: Path) -> bytes | None:
    """What is in a file, None if there is none. Raises StartupError for a link or somebody else's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartupError(
            f"{path} cannot be read ({error.strerror}): remove it, or choose another --instance"
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        refuse_foreign(descriptor, path)
        return file.read()


def create(path: Path) -> int:
    """A new file, open for writing; a descriptor. What bears that name goes. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
