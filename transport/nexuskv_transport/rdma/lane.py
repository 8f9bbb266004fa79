"""A queue pair that reads, for one tenant: its queue, its completions, and what waits for room in it.

Owns posting and the meaning of completions. Knows nothing of deadlines, of other lanes, and of how its peer was found.
"""

import contextlib
import secrets
import select
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nexuskv.errors import StartupError
from nexuskv_transport.rdma.gids import Entry
from nexuskv_transport.rdma.handshake import Address, Answer
from nexuskv_transport.rdma.reads import Read, Window
from nexuskv_transport.rdma.regions import Probe
from nexuskv_transport.rdma.verbs import NO_ACCESS, Completions, Device, Domain, QueuePair

DEPTH = 256
"""Work requests of one send queue, and places of its completion queue."""
PROOF_SECONDS = 5.0
FLUSH_SECONDS = 0.5
MOST_SEQUENCE = 1 << 24
MOST_ON_THE_WIRE = 255
SUCCESS = 0
NOT_POSTED = -1
"""In place of a status of the verbs."""


class Failure(NamedTuple):
    """The first work request that failed: of which pull, and how (a status of the verbs)."""

    id: int
    status: int


class Lane:
    """Made for one domain of the local device; reads once it is connected."""

    def __init__(self, domain: Domain, entry: Entry) -> None:
        device = domain.device
        self.failure: Failure | None = None
        self._domain = domain
        self._entry = entry
        depth = min(DEPTH, device.limits.depth)
        with contextlib.ExitStack() as stack:
            self.completions = Completions(device, depth)
            stack.callback(self.completions.close)
            self._pair = QueuePair(domain, self.completions, depth)
            stack.pop_all()
        self._window = Window(depth)
        self._waiting: deque[Read] = deque()
        self.address = address_of_pair(device, self._pair.number, entry)

    def connect(self, theirs: Address) -> None:
        """Raises StartupError."""
        self._pair.connect(self.address, theirs, self._entry.row, NO_ACCESS)

    def proves(self, answer: Answer, wanted: Callable[[], bool]) -> bool:
        """Whether a READ really gets through to the peer. Waits for it, as long as it is `wanted`."""
        landing = Probe(self._domain, remote=False)
        try:
            here, there = landing.registration.lkey, answer.probe_rkey
            nbytes = len(answer.probe)
            self.offer([Read(-1, landing.address, here, answer.probe_address, there, nbytes, last=True)])
            until = time.monotonic() + PROOF_SECONDS
            while self._window and self.failure is None and time.monotonic() < until and wanted():
                readable, _, _ = select.select([self.completions.fd], [], [], 0.1)
                self.drain(signalled=bool(readable))
            return landing.read() == answer.probe
        finally:
            landing.close()

    def offer(self, reads: Iterable[Read]) -> None:
        """Queues READs, and posts what there is room for."""
        self._waiting.extend(reads)
        self._post()

    def drain(self, *, signalled: bool) -> list[int]:
        """The pulls that are done, in order; then posts more. After a failure, `failure` is set and nothing is."""
        done: list[int] = []
        for completion in self.completions.drained(signalled=signalled):
            if completion.status == SUCCESS:
                done += self._window.complete(completion.wr_id)
                continue
            before, failed = self._window.fail(completion.wr_id)
            done += before
            if failed is not None and self.failure is None:
                self.failure = Failure(failed, completion.status)
        if self.failure is None:
            self._post()
        return done

    def stop(self) -> list[int]:
        """Ends it: when it returns, nothing of it is written any more. Returns pulls that were done before."""
        self._pair.fail()
        self.failure = self.failure or Failure(-1, NOT_POSTED)
        done: list[int] = []
        until = time.monotonic() + FLUSH_SECONDS
        while self._window and time.monotonic() < until:
            done += self.drain(signalled=False)
            time.sleep(0)
        # A device that flushes slowly is cut off for good here: a queue pair that is gone writes nothing.
        self._pair.close()
        self.completions.close()
        return done

    def _post(self) -> None:
        while self._waiting:
            first, chain = self._window.admit(self._waiting)
            if not chain:
                return
            try:
                self._pair.post(chain, first)
            except StartupError:  # the device itself has failed
                self.failure = Failure(chain[0].id, NOT_POSTED)
                return


def address_of_pair(device: Device, number: int, entry: Entry) -> Address:
    """What a peer has to know of a queue pair that uses a row of the GID table."""
    return Address(
        queue_pair=number,
        sequence=secrets.randbelow(MOST_SEQUENCE),
        gid=entry.gid.exploded,
        kind=entry.kind,
        lid=device.lid,
        mtu=device.mtu,
        initiated=min(device.limits.initiated, MOST_ON_THE_WIRE),
        served=min(device.limits.served, MOST_ON_THE_WIRE),
    )
