"""Fetches of a group: the largest boundary that a peer has, whole or not at all.

Owns the order: which boundary, the pages before it, then its own pages of all members, reserved and committed together.
The pages before it come as those of each member alone: they belong to earlier boundaries, of which nobody finds one
with a page missing. Which pages a boundary needs is the contract's affair (`contract/groups.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from nexuskv.contract import Descriptor
from nexuskv.contract.groups import Member, longest_boundary, members
from nexuskv.protocol import messages as m
from nexuskv.protocol.cost import ComputeCost
from nexuskv_daemon.peers.asking import Granted, Pages
from nexuskv_daemon.peers.fetching import LATE, TRIES, Fetcher, Outcome, Wanted, account, blaming
from nexuskv_daemon.peers.grounds import Grounds
from nexuskv_daemon.peers.landing import Ground, GroupBatch, Lander
from nexuskv_daemon.peers.seeking import Candidate, Question, Seeker

Name = tuple[str, tuple[bytes, ...], bytes]
"""Where a request ends: the tenant, the digests of the members, and the last key of the first one."""


@dataclass(frozen=True, slots=True)
class WantedGroup:
    """Pages of `boundaries` boundaries, of each member in order; `parents` come before the first of each."""

    tenant: str
    descriptors: Sequence[Descriptor]
    keys: Sequence[list[bytes]]
    parents: Sequence[bytes]
    boundaries: int

    @property
    def name(self) -> Name:
        """The same for those who want the same last boundary; their first ones may differ."""
        return self._ending(self.keys[0][-1])

    @property
    def before(self) -> Name:
        """The name of what comes before it."""
        return self._ending(self.parents[0])

    def _ending(self, last: bytes) -> Name:
        return self.tenant, tuple(each.digest for each in self.descriptors), last


@dataclass(frozen=True, slots=True)
class _Offered:
    """A boundary that a peer has; `members` are its own pages there, a candidate a member."""

    boundary: int
    members: list[Candidate]


class GroupFetcher:
    """All fetches of groups."""

    def __init__(self, seeker: Seeker, lander: Lander, fetcher: Fetcher, grounds: Grounds) -> None:
        self._seeker = seeker
        self._lander = lander
        self._fetcher = fetcher
        self._grounds = grounds
        self._pulls: dict[Name, asyncio.Task[Outcome]] = {}

    async def fetch(self, wanted: WantedGroup, until: float) -> Outcome:
        """What came by `until`, of time.monotonic.

        Who wants the same waits for a pull that is under way, and pulls himself what is absent after it: its time limit
        may have been shorter, or its first boundary a later one.
        """
        total = Outcome()
        while (left := until - time.monotonic()) > 0:
            theirs = self._pulls.get(wanted.name)
            pull = theirs or self._begin(wanted, until)
            if not (await asyncio.wait({pull}, timeout=left))[0]:
                break
            total.join(pull.result())
            if theirs is None:
                return total
        total.reason = LATE
        return total

    def _begin(self, wanted: WantedGroup, until: float) -> asyncio.Task[Outcome]:
        """Starts a pull, which goes on also when nobody waits for it any more."""
        before = self._pulls.get(wanted.before)
        pull = self._pulls[wanted.name] = asyncio.create_task(self._pull(wanted, until, before))
        pull.add_done_callback(lambda _: self._pulls.pop(wanted.name))
        return pull

    async def _pull(self, wanted: WantedGroup, until: float, before: asyncio.Task[Outcome] | None) -> Outcome:
        if before is not None:  # a long sequence comes in several requests, all at once
            await asyncio.wait({before}, timeout=max(0.0, until - time.monotonic()))
        grounds = [await self._grounds.known(wanted.tenant, each) for each in wanted.descriptors]
        return await _GroupPull(self._lander, self._fetcher, wanted, grounds, until).run(self._seeker)


class _GroupPull:
    """One of them."""

    def __init__(
        self, lander: Lander, fetcher: Fetcher, wanted: WantedGroup, grounds: Sequence[Ground], until: float
    ) -> None:
        self._lander = lander
        self._fetcher = fetcher
        self._wanted = wanted
        self._grounds = grounds
        self._until = until
        self._members: tuple[Member, ...] = members(wanted.descriptors)
        self._total = Outcome()

    async def run(self, seeker: Seeker) -> Outcome:
        """Turns to one peer after another, until one has brought what it has."""
        wanted, total = self._wanted, self._total
        here = await self._here()
        if here == wanted.boundaries:
            return total
        total.reason = "no peer that may be asked has more of these boundaries"
        lead = next((at for at, each in enumerate(self._members) if each.chained), 0)
        question = Question(wanted.tenant, wanted.descriptors[lead], wanted.keys[lead], self._until)
        for candidate in (await seeker.seek(question))[:TRIES]:
            with blaming(candidate, self._until, total):
                offered = await self._offered(candidate)
                if offered.boundary > here and await self._take(offered):
                    total.reason = "" if offered.boundary == wanted.boundaries else "no peer has more of them"
                    break
            if time.monotonic() >= self._until:
                break
        return total

    async def _here(self) -> int:
        """The largest boundary that is restorable here."""
        present: list[bytes] = []
        for ground, keys in zip(self._grounds, self._wanted.keys, strict=True):
            found = await ground.session.ask(m.Lookup(ground.session.id(), ground.arena, keys), m.Found)
            present.append(bytes(state == m.PRESENT for state in found.states))
        return longest_boundary(self._members, present, self._wanted.boundaries)

    async def _offered(self, candidate: Candidate) -> _Offered:
        """The largest boundary that a peer has, by what it says of each member. Raises LinkLost, PeerRefused."""
        way, wanted = candidate.connected, self._wanted
        async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
            arenas = [await way.arena(wanted.tenant, each) for each in wanted.descriptors]
            limit = wanted.boundaries if all(arenas) else 0
            while limit:
                asked = [
                    way.link.ask(m.Measure(way.link.id(), arena, keys[: limit * each.pages]), m.Measured)
                    for arena, keys, each in zip(arenas, wanted.keys, self._members, strict=True)
                ]
                found = await asyncio.gather(*asked)
                reached = min(each.stop // own.pages for each, own in zip(found, self._members, strict=True))
                if reached >= limit:
                    break
                limit = reached
        return _Offered(limit, [Candidate(candidate.peer, way, arena, 0, 0) for arena in arenas])

    async def _take(self, offered: _Offered) -> bool:
        """The pages before the boundary, and then all that are its own. Whether it is here now."""
        for at, member in enumerate(self._members):
            first = member.own(offered.boundary).start
            needed = range(member.needed(offered.boundary).start, first)
            if needed and not await self._before(at, needed, offered):
                return False
        async with self._pinned(offered) as granted:
            if not granted:
                self._total.reason = f"{offered.members[0].peer.address} had fewer pages than it said"
                return False
            batches = [
                GroupBatch(ground, self._own(at, offered.boundary), each.places, self._parent(at, offered))
                for at, (ground, each) in enumerate(zip(self._grounds, granted, strict=True))
            ]
            source = offered.members[0]
            landed = await self._lander.land_boundary(batches, source.connected, self._until)
        account(source, landed)
        self._total.add(landed, source.peer.address)
        return not landed.reason

    async def _before(self, at: int, pages: range, offered: _Offered) -> bool:
        """Pages of one member that belong to earlier boundaries. Whether they are here now."""
        ground, keys = self._grounds[at], self._wanted.keys[at]
        parent = keys[pages.start - 1] if pages.start else self._wanted.parents[at]
        chosen = keys[pages.start : pages.stop]
        wanted = Wanted(ground, Pages(ground.descriptor), chosen, parent, 0, ComputeCost())
        came = await self._fetcher.fetch(wanted, self._until, offered.members[at].peer)
        self._total.join(came)
        return not came.reason

    @contextlib.asynccontextmanager
    async def _pinned(self, offered: _Offered) -> AsyncIterator[list[Granted]]:
        """The boundary's own pages of all members, pinned at the peer; none when not all of them are there any more.

        Raises Unusable, LinkLost, PeerRefused.
        """
        granted, whole = list[Granted](), False
        link = offered.members[0].connected.link
        try:
            for at, candidate in enumerate(offered.members):
                keys = self._own(at, offered.boundary)
                granted.append(await Pages(self._wanted.descriptors[at]).pin(candidate, keys, self._until))
                whole = len(granted[-1].places) == len(keys)
                if not whole:
                    break
            yield granted if whole else []
        finally:
            for each in granted:
                link.tell(each.release())

    def _own(self, at: int, boundary: int) -> list[bytes]:
        pages = self._members[at].own(boundary)
        return self._wanted.keys[at][pages.start : pages.stop]

    def _parent(self, at: int, offered: _Offered) -> bytes:
        first = self._members[at].own(offered.boundary).start
        return self._wanted.keys[at][first - 1] if first else self._wanted.parents[at]
