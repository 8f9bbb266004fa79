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
        self._grounds: dict[tuple[str, bytes], Ground] = {}

    async def known(self, tenant: str, descriptor: Descriptor) -> Ground:
        """The arena of a descriptor that a client registered."""
        ground = self._grounds.get((tenant, descriptor.digest))
        if ground is None:
            session = self._session(tenant)
            asked = peering.Resolve(session.id(), descriptor.digest)
            ground = Ground(session, (await session.ask(asked, peering.Resolved)).arena, descriptor)
            self._grounds[tenant, descriptor.digest] = ground
        return ground

    async def registered(self, tenant: str, descriptor: Descriptor) -> Ground:
        """The arena of a descriptor that perhaps no client registered. Raises Declined."""
        if (known := self._grounds.get((tenant, descriptor.digest))) is not None:
            return known
        session = self._session(tenant)
        await session.ask(m.Register(session.id(), contract.encode(descriptor)), m.Registered)
        return await self.known(tenant, descriptor)

    def _session(self, tenant: str) -> LocalSession:
        session = self._sessions.get(tenant)
        if session is None:
            session = self._sessions[tenant] = LocalSession(self._door, self._mappings, tenant)
        return session
