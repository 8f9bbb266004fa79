"""All tenants' shared indexes, and the journal that names them.

Owns which tenant has which objects. Knows nothing of entries: those are each index's affair.
"""

from typing import Any

import msgspec

from nexuskv import contract
from nexuskv.errors import ArenaFull
from nexuskv_daemon import index, journal
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.index import Era, Heard, Sizes, TenantIndex
from nexuskv_daemon.journal import ArenaLine, Journal
from nexuskv_daemon.shm import Namespace

NUMBERS_AT_ONCE = 64
"""Segment numbers set aside in the journal with one write."""


class Publications:
    """Makes a tenant's index when its first arena comes, and finds it again."""

    def __init__(self, namespace: Namespace, era: Era, sizes: Sizes, known: Journal | None = None) -> None:
        """With the journal of an earlier daemon, its objects are taken over. Raises StartupError."""
        self._namespace = namespace
        self._era = era
        self._sizes = sizes
        self._journal = known or Journal()
        self._heard: Heard | None = None
        self.tenants: dict[str, TenantIndex] = {}
        for tenant, number in self._journal.tenants.items():
            self.tenants[tenant] = index.take_over(namespace, number, tenant, era, sizes, self._announce)

    def __call__(self, tenant: str) -> TenantIndex:
        """The publication of a tenant, made on first use. Raises ArenaFull."""
        found = self.tenants.get(tenant)
        if found is None:
            number = max(self._journal.tenants.values(), default=0) + 1
            found = index.create(self._namespace, number, tenant, self._era, self._sizes, self._announce)
            try:
                self._note(tenants={**self._journal.tenants, tenant: number})
            except ArenaFull:
                found.close(keep=False)
                raise
            found.heard = self._heard
            self.tenants[tenant] = found
        return found

    def tell(self, heard: Heard) -> None:
        """Has `heard` hear of every entry, of whatever tenant, that becomes readable or goes."""
        self._heard = heard
        for tenant in self.tenants.values():
            tenant.heard = heard

    def planned(self, segment: int) -> None:
        """A segment is about to be made: its number must not come again. Raises ArenaFull."""
        if segment > self._journal.segments:
            self._note(segments=segment + NUMBERS_AT_ONCE)

    def descriptors(self, session: int) -> list[int]:
        """What the reply to a session's `Attach` carries."""
        return self._of(session).descriptors(session)

    def handed_over(self, session: int) -> None:
        """The reply to a session's `Attach` was sent."""
        self._of(session).handed_over(session)

    @property
    def waiting(self) -> bool:
        """Whether sessions without a connection still hold pins, so that `sweep` has something to find."""
        return any(tenant.waiting for tenant in self.tenants.values())

    @property
    def orphans(self) -> set[int]:
        """Sessions without a connection whose clients still live."""
        return {session for tenant in self.tenants.values() for session in tenant.orphans}

    def sweep(self) -> set[int]:
        """Removes pin objects whose clients are gone. Returns all sessions that went since the last call."""
        return {session for tenant in self.tenants.values() for session in tenant.gone()}

    def close(self, *, keep: bool) -> None:
        """Lets go of all objects; without `keep` removes them, and the journal first: half of them are of no use."""
        if not keep:
            journal.remove(self._namespace.journal)
        for tenant in self.tenants.values():
            tenant.close(keep=keep)

    def _of(self, session: int) -> TenantIndex:
        return next(tenant for tenant in self.tenants.values() if session in tenant.sessions)

    def _announce(self, arena: Arena, descriptor: contract.Descriptor) -> None:
        line = ArenaLine(arena.number, arena.tenant, contract.encode(descriptor))
        self._note(arenas=[*self._journal.arenas, line])

    def _note(self, **changed: Any) -> None:
        noted = msgspec.structs.replace(self._journal, **changed)
        try:
            journal.write(self._namespace.journal, noted)
        except OSError as error:
            raise ArenaFull(f"cannot write {self._namespace.journal}: {error.strerror}") from error
        self._journal = noted
