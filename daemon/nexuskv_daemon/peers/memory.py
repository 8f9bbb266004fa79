"""Segments as the peers' thread has them: mapped, and exposed by the transports that need them.

Owns these mappings and the regions that are told to peers. A segment is mapped when a session first needs it, exposed
by a transport when pages of it first move that way, and let go when the event loop drops it. Knows nothing of the pages
in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from nexuskv.errors import NexusError
from nexuskv.protocol.messages import Segment
from nexuskv_daemon.core.slots import segment_of, slot_of
from nexuskv_transport.base import Region, Transport

log = logging.getLogger(__name__)
SCRATCHES = 1 << 31
"""Numbers from here on are of no segment."""
SCRATCH_BYTES = 4096


class MappedSegment:
    """One segment, writable. `regions` by scheme: what peers have to know to read it, once it is exposed."""

    def __init__(self, segment: Segment, tenant: str, descriptor: int) -> None:
        """Takes over `descriptor`. Raises OSError."""
        self.number = segment.segment
        self.slot_bytes = segment.slot_bytes
        self.regions: dict[str, Future[Region | None]] = {}
        self._tenant = tenant
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self.view = memoryview(self._memory)

    def expose(self, scheme: str, transport: Transport) -> Region | None:
        """Lets peers read it that way; None where that cannot be: then it goes without."""
        try:
            return transport.expose(self.number, self.view, fd=self._descriptor, tenant=self._tenant)
        except (NexusError, OSError) as error:
            log.warning("segment %d is not exposed by %s: %s", self.number, scheme, error)
            return None

    def close(self, transports: Mapping[str, Transport]) -> None:
        """Peers read it no more. Exposures have ended."""
        for scheme, region in self.regions.items():
            if region.result() is not None:
                transports[scheme].withdraw(self.number)
        self.view.release()
        with contextlib.suppress(
            BufferError
        ):  # somebody still has the view of a page: the mapping goes with that
            self._memory.close()
        os.close(self._descriptor)


class Mappings:
    """All of them, by number.

    They are exposed and closed in a thread of their own, in the order in which that was asked for: a device takes a
    while to register a segment, and a reader a while to let go of it.
    """

    def __init__(self, transports: Mapping[str, Transport]) -> None:
        self._transports = transports
        self._mapped: dict[int, MappedSegment] = {}
        self._scratches: dict[str, int] = {}
        self._registrar = ThreadPoolExecutor(1, "registrar")

    def adopt(self, tenant: str, segments: list[Segment], descriptors: list[int]) -> None:
        """Maps those that are not mapped yet; takes over the descriptors of all."""
        for segment, descriptor in zip(segments, descriptors, strict=True):
            if segment.segment in self._mapped:
                os.close(descriptor)
                continue
            try:
                made = MappedSegment(segment, tenant, descriptor)
            except OSError as error:
                log.warning("segment %d cannot be mapped for peers: %s", segment.segment, error)
                os.close(descriptor)
            else:
                self._mapped[segment.segment] = made

    async def region(self, number: int, scheme: str) -> Region | None:
        """What peers have to know to read a segment that way; exposes it. None for one that cannot be."""
        mapped = self._mapped.get(number)
        if mapped is None:
            return None
        exposed = mapped.regions.get(scheme)
        if exposed is None:
            exposed = self._registrar.submit(mapped.expose, scheme, self._transports[scheme])
            mapped.regions[scheme] = exposed
        return exposed.result() if exposed.done() else await asyncio.shield(asyncio.wrap_future(exposed))

    async def scratch(self, tenant: str, scheme: str) -> memoryview | None:
        """Memory that pulls of a tenant's pages are tried with; None where it cannot be exposed."""
        number = self._scratches.setdefault(tenant, SCRATCHES + len(self._scratches))
        if number not in self._mapped:
            descriptor = os.memfd_create("nexuskv-trial", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, SCRATCH_BYTES)
            self.adopt(tenant, [Segment(number, 0, 1, SCRATCH_BYTES, writable=True)], [descriptor])
        if await self.region(number, scheme) is None:
            return None
        return self._mapped[number].view

    def place(self, handle: int) -> tuple[int, int]:
        """Segment and byte offset of a slot. Raises KeyError for a segment that could not be mapped."""
        number = segment_of(handle)
        return number, slot_of(handle) * self._mapped[number].slot_bytes

    def page(self, handle: int, nbytes: int) -> memoryview:
        """The bytes of a slot, writable. Raises KeyError for a segment that could not be mapped."""
        number, offset = self.place(handle)
        return self._mapped[number].view[offset : offset + nbytes]

    def dropped(self, number: int) -> None:
        """The segment is gone."""
        mapped = self._mapped.pop(number, None)
        if mapped is not None:
            self._registrar.submit(mapped.close, self._transports).add_done_callback(_complain)

    def close(self) -> None:
        """Lets go of all."""
        for number in list(self._mapped):
            self.dropped(number)
        self._registrar.shutdown(wait=True)


def _complain(closed: Future[None]) -> None:
    if closed.exception() is not None:
        log.error("a segment is not let go of by a fault of this daemon", exc_info=closed.exception())
