"""What this process exposes by a device: a protection domain for each tenant, memory registered in it in chunks.

Owns the registrations. A key opens memory of its own tenant's domain alone, for a queue pair of that domain, and for
reading alone. Knows nothing of peers.
"""

import mmap
import secrets
import threading
from bisect import bisect_right, insort
from contextlib import ExitStack
from typing import NamedTuple

from nexuskv.errors import LocalError
from nexuskv_transport.base import Chunk, KeyedRegion
from nexuskv_transport.extents import address_of
from nexuskv_transport.rdma.handshake import PROBE_BYTES
from nexuskv_transport.rdma.reads import Stretch
from nexuskv_transport.rdma.verbs import Device, Domain, Registration

CHUNK_BYTES = 256 << 20
"""Most bytes of one registration: pyverbs holds the interpreter lock while a device registers, so between two chunks
the other threads of a daemon get on. Devices take more, and so many keys too."""


class Probe:
    """A few bytes that every peer of a domain may read, to prove that a way to it works."""

    def __init__(self, domain: Domain, *, remote: bool) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self.content = secrets.token_bytes(PROBE_BYTES) if remote else bytes(PROBE_BYTES)
        self._memory[:PROBE_BYTES] = self.content
        self.address = address_of(memoryview(self._memory))
        self.registration = Registration(domain, self.address, mmap.PAGESIZE, remote=remote)

    def read(self) -> bytes:
        """What is in it now."""
        return self._memory[:PROBE_BYTES]

    def close(self) -> None:
        self.registration.close()
        self._memory.close()


class Trust(NamedTuple):
    """A tenant's domain, and what proves a way to it."""

    domain: Domain
    probe: Probe


class Exposed(NamedTuple):
    """Memory of a tenant, and the keys that open it here: of consecutive stretches, from `start` on."""

    start: int
    nbytes: int
    tenant: str
    local: list[Stretch]
    registered: ExitStack


class Regions:
    """Safe to use from several threads."""

    def __init__(self, device: Device, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._device = device
        self._chunk_bytes = min(chunk_bytes, device.limits.chunk) // mmap.PAGESIZE * mmap.PAGESIZE
        self._lock = threading.Lock()
        self._trusts: dict[str, Trust] = {}
        self._exposed: dict[int, Exposed] = {}
        self._starts: list[tuple[int, int]] = []  # (address, number), sorted
        self._last: Exposed | None = None  # what was asked for last is asked for next

    def trust(self, tenant: str) -> Trust:
        """The domain of a tenant; made when it is first asked for."""
        with self._lock:
            if tenant not in self._trusts:
                domain = Domain(self._device)
                self._trusts[tenant] = Trust(domain, Probe(domain, remote=True))
            return self._trusts[tenant]

    def expose(self, number: int, buffer: memoryview, tenant: str) -> KeyedRegion:
        """Registers memory. Raises LocalError, or StartupError if the device takes no more."""
        domain, start = self.trust(tenant).domain, address_of(buffer)
        local, chunks = [], []
        with ExitStack() as stack:
            for address in range(start, start + buffer.nbytes, self._chunk_bytes):
                nbytes = min(self._chunk_bytes, start + buffer.nbytes - address)
                registration = Registration(domain, address, nbytes, remote=True)
                stack.callback(registration.close)
                local.append(Stretch(address, nbytes, registration.lkey))
                chunks.append(Chunk(address, nbytes, registration.rkey))
            with self._lock:
                if number in self._exposed:
                    raise LocalError(f"region {number} is exposed already: withdraw it first")
                self._exposed[number] = Exposed(start, buffer.nbytes, tenant, local, stack.pop_all())
                insort(self._starts, (start, number))
        return KeyedRegion(number, buffer.nbytes, tuple(chunks))

    def withdraw(self, number: int) -> None:
        """Ends a region: when it returns, no key of it opens anything. Raises LocalError."""
        with self._lock:
            exposed = self._exposed.pop(number, None)
            if exposed is None:
                raise LocalError(f"region {number} is not exposed")
            self._starts.remove((exposed.start, number))
            self._last = None
        exposed.registered.close()

    def around(self, address: int, nbytes: int) -> Exposed:
        """The exposed memory that those bytes lie in. Raises LocalError if they lie in none."""
        found = self._last
        if found is not None and found.start <= address and address + nbytes <= found.start + found.nbytes:
            return found
        with self._lock:
            at = bisect_right(self._starts, (address, 1 << 32)) - 1
            found = self._exposed[self._starts[at][1]] if at >= 0 else None
            if found is None or address + nbytes > found.start + found.nbytes:
                raise LocalError("pages are pulled into exposed memory: expose what the page lies in")
            self._last = found
            return found

    def close(self) -> None:
        """Ends everything. No queue pair of its domains may be left. Idempotent."""
        for number in list(self._exposed):
            self.withdraw(number)
        with self._lock:
            for trust in self._trusts.values():
                trust.probe.close()
                trust.domain.close()
            self._trusts.clear()
