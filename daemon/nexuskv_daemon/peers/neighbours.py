"""All peers: those of the configuration, and those that come, or that the directory names.

Owns who is known, the dialling with its pauses, and the life of each link. What is asked over a link is others' affair.
A peer that is dead costs a connection attempt now and then, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.dialling import Dialler, Unreachable
from nexuskv_daemon.peers.door import Door
from nexuskv_daemon.peers.link import Link, LinkLost, Wire, greet, hang_up
from nexuskv_daemon.peers.peer import Peer
from nexuskv_daemon.peers.serving import Guest, Serving
from nexuskv_transport.base import Transport

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
"""Seconds between attempts: random up to a bound that doubles, so that a restarted peer is not stormed."""
MOST_LINKS = 1024
MOST_PEERS = 4096


class Neighbours:
    """Peers by address. `hello` is what this host says of itself."""

    def __init__(
        self,
        dialler: Dialler,
        hello: p.Hello,
        transports: Mapping[str, Transport],
        serving: Serving,
        door: Door,
    ) -> None:
        self.peers: dict[str, Peer] = {}
        self._dialler = dialler
        self._hello = hello
        self._transports = transports
        self._serving = serving
        self._door = door
        self._links = 0
        self._dialled: set[str] = set()
        self._changed = asyncio.Event()

    def know(self, address: str, *, static: bool) -> Peer:
        """The peer at an address; it is dialled from now on."""
        peer = self._peer(address, static=static)
        if address not in self._dialled:
            self._dialled.add(address)
            self._door.start(self._keep(peer))
        return peer

    def named(self, name: str) -> Peer | None:
        """A connected peer by its address or instance name."""
        there = [peer for peer in self.peers.values() if peer.connected is not None]
        return next((peer for peer in there if name in (peer.address, peer.instance)), None)

    def by_use(self) -> list[Peer]:
        """All of them, connected ones first."""
        return sorted(self.peers.values(), key=lambda peer: peer.connected is None)

    async def reach(self, address: str, seconds: float) -> Peer | None:
        """The peer at an address once it is connected, dialled if need be; None when that takes too long."""
        if address not in self.peers and len(self.peers) >= MOST_PEERS:
            return None
        peer = self.know(address, static=False)
        try:
            async with asyncio.timeout(seconds):
                while peer.connected is None and not peer.myself and address in self._dialled:
                    await self._changed.wait()
        except TimeoutError:
            return None
        return peer if peer.connected is not None else None

    def hang_up(self) -> None:
        """Ends all links and lanes."""
        for peer in self.peers.values():
            peer.hang_up()

    async def welcome(self, wire: Wire) -> None:
        """Somebody connected: says hello, and serves until the link ends."""
        try:
            link = await self._greeted(wire)
        except LinkLost as error:
            log.warning("%s was turned away: %s", wire.name, error)
            await hang_up(wire.writer)
            return
        await self._live(self._peer(link.theirs.advertise or wire.name, static=False), link)

    async def _keep(self, peer: Peer) -> None:
        """Keeps a link to a peer: for ever if it stands in the configuration, else until it cannot be reached."""
        try:
            while not peer.myself:
                link = await self._dial_until_reached(peer)
                await self._live(peer, link)
                await asyncio.sleep(random.uniform(0, FIRST_PAUSE))  # noqa: S311  # no secret
        except Unreachable as error:
            log.info("%s is given up: %s", peer.address, error)
        finally:
            self._dialled.discard(peer.address)
            self._forget(peer)
            self._tell()

    async def _dial_until_reached(self, peer: Peer) -> Link:
        async for attempt in AsyncRetrying(
            wait=wait_random_exponential(FIRST_PAUSE, LONGEST_PAUSE),
            retry=retry_if_exception_type(Unreachable) if peer.static else lambda _: False,
            reraise=True,
        ):
            with attempt:
                return await self._dial(peer)
        raise AssertionError("retrying ends with a result or an error")

    async def _dial(self, peer: Peer) -> Link:
        try:
            wire = await self._dialler.dial(peer.address)
            try:
                return await self._greeted(wire)
            except LinkLost as error:
                await hang_up(wire.writer)
                raise Unreachable(f"{peer.address}: {error}") from error
        except Unreachable as error:
            if peer.trouble != str(error):  # said once, however often it is tried
                log.warning("%s", error)
            peer.trouble = str(error)
            raise

    async def _greeted(self, wire: Wire) -> Link:
        if self._links >= MOST_LINKS:
            raise LinkLost(f"there are {MOST_LINKS} links already")
        return Link(wire, *await greet(wire, self._hello))

    async def _live(self, peer: Peer, link: Link) -> None:
        """The life of a link."""
        if link.theirs.boot_epoch == self._hello.boot_epoch:  # every host may be given the same list of peers
            peer.myself = True
            link.close("this is myself")
        guest = Guest(self._serving, link)
        connected = peer.joined(link, guest, self._transports, self._serving.mappings)
        self._links += 1
        self._tell()
        log.info("%s (%s) is connected", peer.address, peer.instance)
        try:
            await link.run(guest.serve)
        finally:
            self._links -= 1
            guest.leave()
            peer.parted(connected)
            self._forget(peer)
            log.info("%s (%s) is gone: %s", peer.address, peer.instance, link.ended)

    def _peer(self, address: str, *, static: bool) -> Peer:
        peer = self.peers.get(address)
        if peer is None:
            peer = self.peers[address] = Peer(address, static=static)
        return peer

    def _forget(self, peer: Peer) -> None:
        """Strangers would pile up: who only came is known while it is there."""
        if not peer.static and peer.connected is None and peer.address not in self._dialled:
            self.peers.pop(peer.address, None)

    def _tell(self) -> None:
        """Wakes whoever waits for a peer."""
        self._changed.set()
        self._changed = asyncio.Event()
