"""Segments as the peers' thread has them: mapped, and exposed by every transport.

Owns these mappings and the regions that are told to peers. A segment is mapped when a session first needs it and let go
when the event loop drops it. Knows nothing of the pages in it.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections.abc import Mapping

from nexuskv.errors import NexusError
from nexuskv.protocol.messages import Segment
from nexuskv_daemon.core.slots import segment_of, slot_of
from nexuskv_transport.base import Region, Transport

log = logging.getLogger(__name__)


class MappedSegment:
    """One segment, writable; `regions` by scheme are what peers have to know to read it."""

    def __init__(
        self, segment: Segment, tenant: str, descriptor: int, transports: Mapping[str, Transport]
    ) -> None:
        """Takes over `descriptor`. A transport that cannot expose it goes without. Raises OSError."""
        self.number = segment.segment
        self.slot_bytes = segment.slot_bytes
        self.regions: dict[str, Region] = {}
        self._transports = transports
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self.view = memoryview(self._memory)
        for scheme, transport in transports.items():
            try:
                region = transport.expose(self.number, self.view, fd=descriptor, tenant=tenant)
            except (NexusError, OSError) as error:
                log.warning("segment %d is not exposed by %s: %s", self.number, scheme, error)
            else:
                self.regions[scheme] = region

    def close(self) -> None:
        """Peers read it no more."""
        for scheme in self.regions:
            self._transports[scheme].withdraw(self.number)
        self.view.release()
        with contextlib.suppress(
            BufferError
        ):  # somebody still has the view of a page: the mapping goes with that
            self._memory.close()
        os.close(self._descriptor)


class Mappings:
    """All of them, by number."""

    def __init__(self, transports: Mapping[str, Transport]) -> None:
        self._transports = transports
        self._mapped: dict[int, MappedSegment] = {}

    def adopt(self, tenant: str, segments: list[Segment], descriptors: list[int]) -> None:
        """Maps those that are not mapped yet; takes over the descriptors of all."""
        for segment, descriptor in zip(segments, descriptors, strict=True):
            if segment.segment in self._mapped:
                os.close(descriptor)
                continue
            try:
                made = MappedSegment(segment, tenant, descriptor, self._transports)
            except OSError as error:
                log.warning("segment %d cannot be mapped for peers: %s", segment.segment, error)
                os.close(descriptor)
            else:
                self._mapped[segment.segment] = made

    def regions(self, number: int) -> Mapping[str, Region]:
        """What peers have to know to read a segment, by scheme; nothing for one that could not be mapped."""
        mapped = self._mapped.get(number)
        return mapped.regions if mapped is not None else {}

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
            mapped.close()

    def close(self) -> None:
        """Lets go of all."""
        for number in list(self._mapped):
            self.dropped(number)
