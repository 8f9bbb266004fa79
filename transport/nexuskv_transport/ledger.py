"""The books of a connection: which pulls are outstanding, how many more may be, and which have ended.

Owns that each pull ends exactly once, that outstanding pulls share no byte, and the descriptor that tells of their end.
Knows nothing of how bytes move: a transport takes pulls in, and says how each ended.
"""

import os
import threading
from collections.abc import Iterable, Sequence

from nexuskv.errors import LocalError
from nexuskv_transport.base import Done, Limits, Outcome, Pull
from nexuskv_transport.extents import Extents, address_of
from nexuskv_transport.regions import Stretch


class Ledger:
    """Safe to use from several threads.

    A pull is *running* until `finish`, then *ended* until `completed` hands it out. Until then its id and its extent
    are not free, and it counts against the limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.received = 0
        self.closed = False
        self._limits = limits
        self._lock = threading.Lock()
        self._extents = Extents()
        self._running: dict[int, tuple[int, int, float]] = {}  # id to address, length, deadline
        self._ended: dict[int, tuple[Outcome, int, int]] = {}  # id to outcome, address, length
        self._nbytes = 0
        self._telling = threading.Lock()  # of `ready`, and of whether it was closed
        self._told = False  # `ready` is readable, or is about to be

    def take(self, pulls: Sequence[Pull], deadline: float) -> int:
        """Books as many as the limits allow, from the first on, and returns their number, or raises LocalError."""
        booked = 0
        with self._lock:
            try:
                for pull in pulls:
                    if not self._book(pull, deadline):
                        break
                    booked += 1
            except LocalError:
                for pull in pulls[:booked]:
                    start, nbytes, _ = self._running.pop(pull.id)
                    self._free(start, nbytes)
                raise
        return booked

    def finish(self, ids: Iterable[int], outcome: Outcome) -> None:
        """Ends those of the pulls that are running. Nothing may write into their extents any more."""
        with self._lock:
            for id_ in ids:
                entry = self._running.pop(id_, None)
                if entry is not None:
                    start, nbytes, _ = entry
                    self._ended[id_] = outcome, start, nbytes
                    if outcome is Outcome.OK:
                        self.received += nbytes
        self.tell()

    def tell(self) -> None:
        """Makes `ready` readable once: something has happened that its owner should look at."""
        # Not under the lock of the books: whoever wakes up wants that at once.
        with self._telling:
            if not self._told and not self.closed:
                self._told = True
                os.eventfd_write(self.ready, 1)

    def completed(self) -> list[Done]:
        """What has ended since the last call, and is free from now on."""
        if not self.closed:
            try:  # noqa: SIM105  # a context manager would cost as much as the rest of this
                os.eventfd_read(self.ready)
            except BlockingIOError:
                pass
            # In this order: who ends a pull before this line need not tell, for it is found below; who ends one later
            # makes `ready` readable again.
            self._told = False
        with self._lock:
            ended, self._ended = self._ended, {}
            for _, start, nbytes in ended.values():
                self._free(start, nbytes)
        return [Done(id_, entry[0]) for id_, entry in ended.items()]

    def running(self) -> list[int]:
        """The ids of what has not ended."""
        with self._lock:
            return list(self._running)

    def next_deadline(self) -> float:
        """The earliest deadline of what is running; infinite if nothing is."""
        with self._lock:
            return min((deadline for _, _, deadline in self._running.values()), default=float("inf"))

    def overdue(self, now: float) -> list[int]:
        """The ids of running pulls whose deadline has passed."""
        with self._lock:
            return [id_ for id_, (_, _, deadline) in self._running.items() if deadline <= now]

    def close(self) -> None:
        """Closes the descriptor; what has ended can still be taken out."""
        with self._telling:
            if not self.closed:
                self.closed = True
                os.close(self.ready)

    def _book(self, pull: Pull, deadline: float) -> bool:
        """False if that is too much now. Raises LocalError for what can be seen to be wrong from here."""
        id_, region, offset, into = pull
        start, nbytes = address_of(into), into.nbytes
        count = len(self._running) + len(self._ended)
        if count and (count >= self._limits.pulls or self._nbytes + nbytes > self._limits.nbytes):
            return False  # one that is larger than all limits is taken when it is alone
        if not 0 <= offset <= region.nbytes - nbytes:
            raise LocalError(
                f"pull {id_}: {nbytes} bytes at {offset} lie outside a region of {region.nbytes} bytes"
            )
        if id_ in self._running or id_ in self._ended:
            raise LocalError(f"pull {id_} is outstanding: wait until it is done, or choose another id")
        if not self._extents.claim(start, nbytes):
            raise LocalError(
                f"pull {id_} overlaps the extent of an outstanding pull: wait until that is done"
            )
        self._running[id_] = start, nbytes, deadline
        self._nbytes += nbytes
        return True

    def _free(self, start: int, nbytes: int) -> None:
        self._extents.release(start)
        self._nbytes -= nbytes


def stretches(pulls: Sequence[Pull]) -> list[Stretch]:
    """What to ask a peer for that serves by tokens. Raises LocalError for regions of another kind of transport."""
    try:
        return [(region.token, region.number, into.nbytes, offset) for _, region, offset, into in pulls]  # type: ignore[union-attr]  # the one without is told below
    except AttributeError:
        raise LocalError(
            "this region is served by a device, not by a token: connect by its own transport"
        ) from None
