"""What clients want of other hosts in parts: blocks of pages, and boundaries of groups.

Owns the translation of these requests into fetches, as `errands.py` does for whole pages.
"""

from __future__ import annotations

import time

from nexuskv.contract import Descriptor
from nexuskv.contract.blocks import blocks_of
from nexuskv.protocol import messages as m
from nexuskv.protocol.fetches import FetchBlocks, FetchGroup
from nexuskv_daemon.peers.asking import SelectedBlocks
from nexuskv_daemon.peers.fetching import Fetcher, Wanted
from nexuskv_daemon.peers.grounds import Grounds
from nexuskv_daemon.peers.group_fetching import GroupFetcher, WantedGroup
from nexuskv_daemon.peers.landing import Lander
from nexuskv_daemon.peers.seeking import Seeker


class PartErrands:
    """Performs them: blocks as any pages are fetched, boundaries in a way of their own."""

    def __init__(self, grounds: Grounds, seeker: Seeker, lander: Lander, fetcher: Fetcher) -> None:
        self._grounds = grounds
        self._fetcher = fetcher
        self._groups = GroupFetcher(seeker, lander, fetcher, grounds)

    async def perform(
        self, tenant: str, descriptor: Descriptor, request: FetchBlocks | FetchGroup
    ) -> m.Fetched:
        """What came by the request's time limit; `descriptor` is that of the blocks' pages."""
        until = time.monotonic() + request.milliseconds / 1000
        if isinstance(request, FetchGroup):
            wanted = WantedGroup(tenant, request.members, request.boundaries)
            came = await self._groups.fetch(wanted, until)
        elif request.wanted:
            blocks = blocks_of(descriptor)
            ground = await self._grounds.registered(tenant, blocks.descriptor)
            ask = SelectedBlocks(descriptor, blocks, blocks.layer(request.layer))
            keys = ask.name(request.wanted)
            came = await self._fetcher.fetch(Wanted(ground, ask, keys, b"", 0, m.ComputeCost()), until)
        else:
            return m.Fetched(request.id, 0, 0, "", "")
        return m.Fetched(request.id, came.pages, came.nbytes, came.source, came.reason)
