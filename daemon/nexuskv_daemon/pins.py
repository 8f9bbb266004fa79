"""Pin objects: where each session notes what it reads, without telling the daemon.

Owns one object a session and the question whether its client still lives. The client holds the only open file
description with the lock on it, so the kernel answers that question, also to a daemon that was started later and in
another container.
"""

import contextlib
import os

from nexuskv.native import PinArray, format_pins, lock_owner, owner_alive, pin_bytes
from nexuskv_daemon.shm import Namespace

PINS = "pins"


class PinObject:
    """One session's pin array. `array` is the daemon's view; `client` the locked descriptor until it is handed over."""

    def __init__(self, namespace: Namespace, session: int, descriptor: int) -> None:
        """Takes over `descriptor`."""
        self.session = session
        self.client: int | None = None
        self._namespace = namespace
        self._descriptor = descriptor
        self.array = PinArray(descriptor)

    @property
    def index_id(self) -> int:
        """The index that the session reads, as its client last wrote it there (`nexuskv.h`, nx_pin_header)."""
        return int.from_bytes(os.pread(self._descriptor, 8, 24), "little")

    @property
    def held(self) -> bool:
        """Whether a client still has its descriptor of this object."""
        return self.client is not None or owner_alive(self._descriptor)

    def hand_over(self) -> None:
        """The client's descriptor was sent: from now on only the client keeps the lock."""
        if self.client is not None:
            os.close(self.client)
            self.client = None

    def close(self, *, keep: bool = False) -> None:
        """Lets go of the object, and without `keep` removes it."""
        self.hand_over()
        os.close(self._descriptor)
        if not keep:
            self._namespace.remove(PINS, self.session)


def make(namespace: Namespace, session: int, capacity: int, index_id: int) -> PinObject:
    """A new pin object of `capacity` words, locked for the client. Raises ArenaFull."""
    descriptor = namespace.create(PINS, session, pin_bytes(capacity))
    with contextlib.ExitStack() as undo:
        undo.callback(namespace.remove, PINS, session)
        undo.callback(os.close, descriptor)
        format_pins(descriptor, index_id, session)
        made = PinObject(namespace, session, descriptor)
        made.client = namespace.open(PINS, session, writable=True)
        undo.pop_all()
    lock_owner(made.client)
    return made


def take_over(namespace: Namespace, session: int) -> PinObject:
    """A pin object that an earlier daemon made. Raises ArenaFull, LayoutError."""
    descriptor = namespace.open(PINS, session, writable=True)
    try:
        return PinObject(namespace, session, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
