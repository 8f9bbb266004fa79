"""The far end of a check: regions full of known bytes, and a loop that accepts whoever comes.

Owns what it exposes, and the form of what a process that holds it is told and answers.
"""

import mmap
import os
import select
import threading
from functools import cache

import msgspec
import numpy as np

from nexuskv_transport.base import Identity, Plain, Region, Security, Transport

REGION_BYTES = 32 << 20
SERVED, REVOKED, FOREIGN = 1, 2, 3
"""Numbers of regions: one to read from, one that is going to be withdrawn, and one of a tenant the near end is not."""
OURS, THEIRS = "ours", "theirs"
TENANTS = {SERVED: OURS, REVOKED: OURS, FOREIGN: THEIRS}


class FarOrders(msgspec.Struct):
    """What the process is told at its start."""

    address: str
    security: Security = msgspec.field(default_factory=Plain)


class FarCard(msgspec.Struct):
    """What it answers: where it listens, and its regions by number."""

    address: str
    regions: dict[int, Region]


class Memory:
    """Shared memory as an arena has it: a mapping and its descriptor."""

    def __init__(self, nbytes: int) -> None:
        self.fd = os.memfd_create("nexuskv-checks")
        os.ftruncate(self.fd, nbytes)
        self._mapping = mmap.mmap(self.fd, nbytes)
        self.view = memoryview(self._mapping)

    def close(self) -> None:
        """The mapping itself goes with its last view."""
        os.close(self.fd)


@cache
def content(number: int) -> bytes:
    """All bytes of a region: pseudo-random, the same in every process."""
    return np.random.default_rng(number).bytes(REGION_BYTES)


class Far:
    """Exposes the regions by `transport`, and accepts in a thread until it is told to hold."""

    def __init__(self, transport: Transport, address: str) -> None:
        self._transport = transport
        self._memory = {number: Memory(REGION_BYTES) for number in TENANTS}
        regions = {number: self._expose(number) for number in TENANTS}
        self._listener = transport.listen(address, admit)
        self.card = FarCard(self._listener.address, regions)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._accept, name="checks-accept")
        self._thread.start()

    def withdraw(self, number: int) -> None:
        """Peers can read the region no more."""
        self._transport.withdraw(number)

    def hold(self) -> None:
        """Accepts nobody from now on. Idempotent."""
        if self._thread.is_alive():
            os.eventfd_write(self._stop, 1)
            self._thread.join()

    def close(self) -> None:
        """Ends everything. Idempotent."""
        self.hold()
        self._transport.close()
        if self._stop < 0:
            return
        os.close(self._stop)
        self._stop = -1
        for memory in self._memory.values():
            memory.close()

    def _expose(self, number: int) -> Region:
        memory = self._memory[number]
        memory.view[:] = content(number)
        return self._transport.expose(number, memory.view, fd=memory.fd, tenant=TENANTS[number])

    def _accept(self) -> None:
        while True:
            readable, _, _ = select.select([self._listener.fileno(), self._stop], [], [])
            if self._stop in readable:
                return
            self._listener.accept()


def admit(identity: Identity) -> frozenset[str]:
    """What a certificate says; without one, the tenant of the checks."""
    return identity.tenants or frozenset({OURS})
