"""The books of a connection: which pulls are outstanding, how many more may be, and which have ended.

Owns that each pull ends exactly once, that outstanding pulls share no byte, and the descriptor that tells of their end.
Knows nothing of how bytes move: a transport takes pulls in, and says how each ended.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nexuskv.errors import LocalError
from nexuskv_transport.base import Done, Limits, Outcome, Pull, TokenRegion
from nexuskv_transport.extents import Extents, address_of
from nexuskv_transport.regions import Wanted


class _Entry(NamedTuple):
    start: int
    nbytes: int


class Ledger:
    """Safe to use from several threads.

    A pull is booked from `take` until `completed` hands out its end: until then its id and its extent are not free, and
    it counts against the limits. It is running until `finish`.
    """

    def __init__(self, limits: Limits) -> None:
        self.ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.received = 0
        self.closed = False
        self._limits = limits
        self._lock = threading.Lock()
        self._extents = Extents()
        self._booked: dict[int, _Entry] = {}
        self._running: dict[int, float] = {}  # id to deadline
        self._nbytes = 0
        self._done: list[Done] = []
        self._told = False  # `ready` is readable

    def take(self, pulls: Sequence[Pull], deadline: float) -> int:
        """Books as many as the limits allow, from the first on, and returns their number, or raises LocalError."""
        addresses = [_judged(pull) for pull in pulls]
        with self._lock:
            booked = 0
            try:
                for pull, start in zip(pulls, addresses, strict=True):
                    self._check_free(pull, start)
                    if self._full(pull.into.nbytes):
                        break
                    self._book(pull, start, deadline)
                    booked += 1
            except LocalError:
                for pull in pulls[:booked]:
                    del self._running[pull.id]
                    self._unbook(pull.id)
                raise
        return booked

    def finish(self, ids: Iterable[int], outcome: Outcome) -> None:
        """Ends those of the pulls that are running. Nothing may write into their extents any more."""
        with self._lock:
            for id_ in ids:
                if self._running.pop(id_, None) is not None:
                    self._done.append(Done(id_, outcome))
                    if outcome is Outcome.OK:
                        self.received += self._booked[id_].nbytes
            self._tell()

    def tell(self) -> None:
        """Makes `ready` readable once: something else has happened that its owner should look at."""
        with self._lock:
            self._tell()

    def completed(self) -> list[Done]:
        """What has ended since the last call, and is free from now on."""
        with self._lock:
            if self._told and not self.closed:
                os.eventfd_read(self.ready)
            self._told = False
            done, self._done = self._done, []
            for id_, _ in done:
                self._unbook(id_)
            return done

    def running(self) -> list[int]:
        """The ids of what has not ended."""
        with self._lock:
            return list(self._running)

    def next_deadline(self) -> float:
        """The earliest deadline of what is running; infinite if nothing is."""
        with self._lock:
            return min(self._running.values(), default=float("inf"))

    def overdue(self, now: float) -> list[int]:
        """The ids of running pulls whose deadline has passed."""
        with self._lock:
            return [id_ for id_, deadline in self._running.items() if deadline <= now]

    def close(self) -> None:
        """Closes the descriptor; what has ended can still be taken out."""
        with self._lock:
            if not self.closed:
                self.closed = True
                os.close(self.ready)

    def _check_free(self, pull: Pull, start: int) -> None:
        if pull.id in self._booked:
            raise LocalError(f"pull {pull.id} is outstanding: wait until it is done, or choose another id")
        if not self._extents.free(start, pull.into.nbytes):
            raise LocalError(
                f"pull {pull.id} overlaps the extent of an outstanding pull: wait until that is done"
            )

    def _full(self, nbytes: int) -> bool:
        """Whether that is too much. A single one that is larger than all limits fits when it is alone."""
        return bool(self._booked) and (
            len(self._booked) >= self._limits.pulls or self._nbytes + nbytes > self._limits.nbytes
        )

    def _book(self, pull: Pull, start: int, deadline: float) -> None:
        nbytes = pull.into.nbytes
        self._extents.claim(start, nbytes)
        self._booked[pull.id] = _Entry(start, nbytes)
        self._running[pull.id] = deadline
        self._nbytes += nbytes

    def _unbook(self, id_: int) -> None:
        entry = self._booked.pop(id_)
        self._extents.release(entry.start)
        self._nbytes -= entry.nbytes

    def _tell(self) -> None:
        if not self._told and not self.closed:
            self._told = True
            os.eventfd_write(self.ready, 1)


def tokens_of(pulls: Sequence[Pull]) -> list[Wanted]:
    """What to ask a peer for that serves by tokens. Raises LocalError for a region of another kind of transport."""
    return [_wanted(pull) for pull in pulls]


def _wanted(pull: Pull) -> Wanted:
    region = pull.region
    if not isinstance(region, TokenRegion):
        raise LocalError(
            f"pull {pull.id}: region {region.number} is served by a device; connect by its transport"
        )
    return Wanted(region.token, region.number, pull.into.nbytes, pull.offset)


def _judged(pull: Pull) -> int:
    """The address that it writes to. Raises LocalError for what its own region declares impossible."""
    start = address_of(pull.into)
    if pull.offset < 0 or pull.offset + pull.into.nbytes > pull.region.nbytes:
        raise LocalError(
            f"pull {pull.id}: bytes {pull.offset} to {pull.offset + pull.into.nbytes} of a region of"
            f" {pull.region.nbytes}: pull what lies inside"
        )
    return start
