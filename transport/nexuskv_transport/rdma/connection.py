"""The pulling end: takes pulls, has lanes read them, and tells how each ended.

Owns the order of an end: queue pairs are in error, flushed and gone before a pull is reported that they could still
have written. Driven by its caller: all but the control conversation happens within `pull`, `completed` and `close`.
"""

import select
import time
from collections.abc import Sequence

from nexuskv.errors import LocalError
from nexuskv_transport.base import Connection, Done, KeyedRegion, Limits, Outcome, Pull
from nexuskv_transport.extents import address_of
from nexuskv_transport.ledger import Ledger
from nexuskv_transport.rdma.control import Control, Ready
from nexuskv_transport.rdma.lane import NOT_POSTED, Failure, Lane
from nexuskv_transport.rdma.reads import Read, reads_of
from nexuskv_transport.rdma.regions import Regions
from nexuskv_transport.rdma.verbs import Device
from nexuskv_transport.tcp.strand import Dial
from nexuskv_transport.watch import NEVER, Watch

REFUSALS = {9: "an invalid request", 10: "a wrong key, or bytes outside of what it opens"}
"""Statuses by which the peer's device refuses: REM_INV_REQ_ERR, REM_ACCESS_ERR."""
LOST = {
    NOT_POSTED: "the device takes no work",
    2: "the device cannot send",
    5: "the queue pair was ended",
    12: "the peer's device does not answer",
    13: "the peer is not ready",
}
"""Of the rest, those that have a plain meaning: LOC_QP_OP_ERR, WR_FLUSH_ERR, RETRY_EXC_ERR, RNR_RETRY_EXC_ERR."""

_Planned = tuple[str, list[Read]]
"""A tenant, and the READs of one pull."""


class RdmaConnection(Connection):
    """One peer: a lane for each tenant whose pages are pulled."""

    def __init__(self, dial: Dial, device: Device, regions: Regions, watch: Watch, limits: Limits) -> None:
        self.ended: str | None = None
        self.closed = False
        self._device = device
        self._regions = regions
        self._watch = watch
        self._ledger = Ledger(limits)
        self._most = limits.pulls
        self._outstanding = 0
        self._due = NEVER  # no pull that is running has an earlier deadline
        self._lanes: dict[str, Lane] = {}
        self._early: dict[str, list[Read]] = {}  # of pulls whose lane is being made, by tenant
        self._ready = select.epoll()
        self._ready.register(self._ledger.ready, select.EPOLLIN)
        self._control = Control(dial, device, regions, self._ledger.tell)
        watch.add(self)

    @property
    def received(self) -> int:
        return self._ledger.received

    def pull(self, pulls: Sequence[Pull], deadline: float) -> int:
        self._device.check_process()
        pulls = pulls[: max(1, self._most - self._outstanding)]  # what has no chance is not even looked at
        planned = [self._planned(pull) for pull in pulls]
        taken = self._ledger.take(pulls, deadline)
        self._outstanding += taken
        if self.ended is not None:
            self._ledger.finish(self._ledger.running(), Outcome.CLOSED)
            return taken
        by_tenant: dict[str, list[Read]] = {}
        for tenant, reads in planned[:taken]:
            by_tenant.setdefault(tenant, []).extend(reads)
        for tenant, reads in by_tenant.items():
            self._start(tenant, reads)
        self._due = min(self._due, deadline)
        self._watch.look_by(deadline)
        return taken

    def fileno(self) -> int:
        return self._ready.fileno()

    def completed(self) -> list[Done]:
        if self.ended is None:
            self._device.check_process()
            self._advance()
        done = self._ledger.completed()
        self._outstanding -= len(done)
        return done

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._end("closed here")
        self._ready.close()
        self._ledger.close()

    def check(self, now: float) -> float:
        """Has the owner look when a pull is overdue; it is the owner's thread that ends the connection."""
        due = self._ledger.next_deadline()
        if due > now:
            return due
        self._ledger.tell()
        return NEVER

    def _planned(self, pull: Pull) -> _Planned:
        region = pull.region
        if not isinstance(region, KeyedRegion):
            raise LocalError(
                f"pull {pull.id}: region {region.number} is served by a program; connect by its transport"
            )
        start = address_of(pull.into)
        exposed = self._regions.around(start, pull.into.nbytes)
        return exposed.tenant, reads_of(pull, start, exposed.local, region, self._device.limits.message)

    def _start(self, tenant: str, reads: list[Read]) -> None:
        if lane := self._lanes.get(tenant):
            lane.offer(reads)
            return
        if tenant not in self._early:
            self._control.want(tenant)
        self._early.setdefault(tenant, []).extend(reads)

    def _advance(self) -> None:
        ready = {fd for fd, _ in self._ready.poll(0)}
        self._hear()
        for lane in self._lanes.values():
            self._ledger.finish(lane.drain(signalled=lane.completions.fd in ready), Outcome.OK)
            if lane.failure:
                self._fail(lane.failure)
                return
        if self.ended is None and self._control.ended is not None:
            self._end(self._control.ended)
        elif time.monotonic() >= self._due:
            self._expire()

    def _expire(self) -> None:
        self._due = self._ledger.next_deadline()
        if late := self._ledger.overdue(time.monotonic()):
            self._end("a pull was not served by its deadline", dict.fromkeys(late, Outcome.DEADLINE))

    def _hear(self) -> None:
        """Puts new lanes to work."""
        while self.ended is None and not self._control.news.empty():
            news = self._control.news.get()
            early = self._early.pop(news.tenant, [])
            if not isinstance(news, Ready):
                self._end(news.sentence, {read.id: Outcome.REFUSED for read in early})
                return
            self._lanes[news.tenant] = news.lane
            self._ready.register(news.lane.completions.fd, select.EPOLLIN)
            news.lane.offer(early)

    def _fail(self, failure: Failure) -> None:
        if why := REFUSALS.get(failure.status):
            self._end(f"the peer refused a READ: {why}", {failure.id: Outcome.REFUSED})
        else:
            self._end(LOST.get(failure.status, f"a READ failed with status {failure.status} of the verbs"))

    def _end(self, sentence: str, outcomes: dict[int, Outcome] | None = None) -> None:
        """Ends everything once; what is told of it is told after nothing can write any more."""
        if self.ended is not None:
            return
        self.ended = sentence
        self._watch.remove(self)
        self._control.close()
        for lane in self._lanes.values():
            self._ready.unregister(lane.completions.fd)
            self._ledger.finish(lane.stop(), Outcome.OK)
        self._lanes.clear()
        self._early.clear()
        for id_, outcome in (outcomes or {}).items():
            self._ledger.finish([id_], outcome)
        self._ledger.finish(self._ledger.running(), Outcome.CLOSED)
        self._ledger.tell()
