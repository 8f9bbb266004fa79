"""The arenas of this host that pages of others land in, one session a tenant.

Owns these sessions: they reserve on the daemon's own behalf, so a pull does not depend on the client that wished for
it.
"""

from nexuskv import contract
from nexuskv.contract import Descriptor
from nexuskv.protocol import messages as m
from nexuskv_daemon.core import peering
from nexuskv_daemon.peers.door import Door
from nexuskv_daemon.peers.landing import Ground
from nexuskv_daemon.peers.local import LocalSession
from nexuskv_daemon.peers.memory import Mappings


class Grounds:
    """Found by tenant and descriptor; sessions stay for the daemon's life."""

    def __init__(self, door: Door, mappings: Mappings) -> None:
        self._door = door
        self._mappings = mappings
        self._sessions: dict[str, LocalSession] = {}
        self._arenas: dict[tuple[str, bytes], int] = {}

    async def known(self, tenant: str, descriptor: Descriptor) -> Ground:
        """The arena of a descriptor that a client registered; its flags are those given here."""
        session = self._session(tenant)
        arena = self._arenas.get((tenant, descriptor.digest))
        if arena is None:
            asked = peering.Resolve(session.id(), descriptor.digest)
            arena = (await session.ask(asked, peering.Resolved)).arena
            self._arenas[tenant, descriptor.digest] = arena
        return Ground(session, arena, descriptor)

    async def registered(self, tenant: str, descriptor: Descriptor) -> Ground:
        """The arena of a descriptor that perhaps no client registered. Raises Declined."""
        if (tenant, descriptor.digest) not in self._arenas:
            session = self._session(tenant)
            await session.ask(m.Register(session.id(), contract.encode(descriptor)), m.Registered)
        return await self.known(tenant, descriptor)

    def _session(self, tenant: str) -> LocalSession:
        session = self._sessions.get(tenant)
        if session is None:
            session = self._sessions[tenant] = LocalSession(self._door, self._mappings, tenant)
        return session
