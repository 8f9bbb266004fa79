"""All tenants' shared indexes, and the journal that names them.

Owns which tenant has which objects. Knows nothing of entries: those are each index's affair.
"""

from nexuskv import contract
from nexuskv_daemon import index, journal
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.index import Era, Sizes, TenantIndex
from nexuskv_daemon.journal import ArenaLine, Journal
from nexuskv_daemon.shm import Namespace


class Publications:
    """Makes a tenant's index when its first arena comes, and finds it again."""

    def __init__(self, namespace: Namespace, era: Era, sizes: Sizes, known: Journal | None = None) -> None:
        """With the journal of an earlier daemon, its objects are taken over. Raises StartupError."""
        self._namespace = namespace
        self._era = era
        self._sizes = sizes
        self._journal = known or Journal()
        self.tenants: dict[str, TenantIndex] = {}
        for tenant, number in self._journal.tenants.items():
            self.tenants[tenant] = index.take_over(namespace, number, era, sizes, self._announce)

    def __call__(self, tenant: str) -> TenantIndex:
        """The publication of a tenant, made on first use. Raises ArenaFull."""
        found = self.tenants.get(tenant)
        if found is None:
            number = max(self._journal.tenants.values(), default=0) + 1
            found = index.create(self._namespace, number, tenant, self._era, self._sizes, self._announce)
            self.tenants[tenant] = found
            self._journal.tenants[tenant] = number
            journal.write(self._namespace.journal, self._journal)
        return found

    def descriptors(self, session: int) -> list[int]:
        """What an `Attach` notice to a session carries."""
        return self._of(session).descriptors(session)

    def handed_over(self, session: int) -> None:
        """A session's `Attach` notice was sent."""
        self._of(session).handed_over(session)

    @property
    def waiting(self) -> bool:
        """Whether sessions without a connection still hold pins, so that `sweep` has something to find."""
        return any(tenant.orphans for tenant in self.tenants.values())

    def sweep(self) -> set[int]:
        """Removes pin objects whose clients are gone. Returns all sessions that went since the last call."""
        return {session for tenant in self.tenants.values() for session in tenant.gone()}

    def close(self, *, keep: bool) -> None:
        """Lets go of all objects; without `keep` removes them and the journal."""
        for tenant in self.tenants.values():
            tenant.close(keep=keep)
        if not keep:
            journal.remove(self._namespace.journal)

    def _of(self, session: int) -> TenantIndex:
        return next(tenant for tenant in self.tenants.values() if session in tenant.sessions)

    def _announce(self, arena: Arena) -> None:
        line = ArenaLine(arena.number, arena.tenant, contract.encode(arena.descriptor))
        self._journal.arenas.append(line)
        journal.write(self._namespace.journal, self._journal)
