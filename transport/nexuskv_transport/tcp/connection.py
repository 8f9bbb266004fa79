"""The pulling end: several streams to one peer, and the books of what is outstanding on all of them.

Owns how pulls are spread over streams, and that the end of one stream is the end of all. Knows nothing of bytes.
"""

import threading
from collections.abc import Sequence
from operator import attrgetter

from nexuskv_transport.base import Connection, Done, Limits, Outcome, Pull
from nexuskv_transport.ledger import Ledger, stretches
from nexuskv_transport.regions import Stretch
from nexuskv_transport.tcp.strand import Dial, Strand
from nexuskv_transport.watch import NEVER, Watch
from nexuskv_transport.wire import MAX_COUNT

STREAMS = 2
REQUEST_BYTES = 4 << 20
"""Pulls are asked for together up to this much: what a request moves ends at once."""
JOIN_SECONDS = 5.0


class TcpConnection(Connection):
    """Connects by itself."""

    def __init__(self, dial: Dial, limits: Limits, watch: Watch) -> None:
        self.ended: str | None = None
        self.ledger = Ledger(limits)
        self._most = limits.pulls
        self._name = str(dial.endpoint)
        self._watch = watch
        self._lock = threading.Lock()
        self._late: frozenset[int] = frozenset()
        self._strands = [Strand(dial, self.ledger, self) for _ in range(STREAMS)]
        for strand in self._strands:
            strand.start()
        watch.add(self)

    @property
    def received(self) -> int:
        return self.ledger.received

    def pull(self, pulls: Sequence[Pull], deadline: float) -> int:
        pulls = pulls[: self._most]
        wanted = stretches(pulls)
        taken = self.ledger.take(pulls, deadline)
        for start, end, nbytes in _requests(wanted[:taken]):
            strand = min(self._strands, key=_load)
            if not strand.ask(pulls[start:end], wanted[start:end], nbytes):
                self.ledger.finish([pull.id for pull in pulls[start:end]], Outcome.CLOSED)
        self._watch.look_by(deadline)
        return taken

    def fileno(self) -> int:
        return self.ledger.ready

    def completed(self) -> list[Done]:
        return self.ledger.completed()

    def close(self) -> None:
        self._end("closed here")
        self._watch.remove(self)
        for strand in self._strands:
            strand.join(JOIN_SECONDS)
        self.ledger.close()

    def check(self, now: float) -> float:
        """Ends it when a pull is overdue, and lets the streams look after their peer."""
        if self.ended is not None:
            return NEVER
        if late := self.ledger.overdue(now):
            self._end(f"{self._name}: {len(late)} pulls were not served by their deadline", frozenset(late))
            return NEVER
        return min(self.ledger.next_deadline(), *[strand.check(now) for strand in self._strands])

    def over(self, strand: Strand, sentence: str) -> None:
        """Ends the others too; called by a strand that nothing comes from any more."""
        self._end(f"{self._name}: {sentence}")
        self.ledger.finish(strand.fault.ids, strand.fault.outcome)
        self._give_up(strand.left())

    def _end(self, sentence: str, late: frozenset[int] = frozenset()) -> None:
        with self._lock:
            if self.ended is None:
                self._late = late
                self.ended = sentence
        for strand in self._strands:
            self._give_up(strand.cut(sentence))
        self.ledger.tell()

    def _give_up(self, ids: Sequence[int]) -> None:
        self.ledger.finish([id_ for id_ in ids if id_ in self._late], Outcome.DEADLINE)
        self.ledger.finish(ids, Outcome.CLOSED)


_load = attrgetter("load")


def _requests(wanted: Sequence[Stretch]) -> list[tuple[int, int, int]]:
    """From where to where pulls are asked for in one request, and the bytes of it."""
    found: list[tuple[int, int, int]] = []
    start = nbytes = 0
    for at, (_, _, each, _) in enumerate(wanted):
        if at > start and (nbytes + each > REQUEST_BYTES or at - start == MAX_COUNT):
            found.append((start, at, nbytes))
            start = at
            nbytes = 0
        nbytes += each
    if wanted:
        found.append((start, len(wanted), nbytes))
    return found
