"""The client: finds the daemon and opens caches and groups.

Owns the choice of the daemon. Sessions and their renewal are the keeper's, pages the caches' and groups'.
"""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec

from nexuskv.client import fetching
from nexuskv.client.cache import Cache
from nexuskv.client.fetching import Pushed
from nexuskv.client.group import Group
from nexuskv.client.hit import Keys
from nexuskv.client.keeper import SessionKeeper
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.errors import BadRequest
from nexuskv.ipc import address as addresses
from nexuskv.protocol import hosts as h
from nexuskv.protocol import messages as m

Address = str | os.PathLike[str] | None
"""Where a daemon listens."""


class Client:
    """A connection to one daemon, for any number of threads. Its pins and reservations end with it: use it in a `with`.

    After a fork the child has a connection of its own; after a restart of the daemon the next call connects anew.
    """

    def __init__(self, address: Address = None, *, timeout: float = 30.0, shared: bool = True) -> None:
        """Connects to `address`, by default NEXUSKV_SOCKET, the system's daemon or the user's own.

        It is "unix:/path", or the path alone as an os.PathLike. `timeout` bounds every request, in seconds. Without
        `shared`, each hit is asked of the daemon instead of being looked up in the shared index: to compare, and to
        find faults; such hits end with the connection. Raises
        Disconnected, VersionMismatch, BadRequest.
        """
        given: object = timeout  # callers are not all checked for types
        # The kernel takes less than a microsecond for "no timeout".
        if not isinstance(given, int | float) or not 1e-6 <= given < 1 << 31:
            raise BadRequest(f"timeout is {timeout}: it must lie between a microsecond and 2**31 seconds")
        path = addresses.parse(_spelt(address)) if address else addresses.find()
        self._keeper = SessionKeeper(path, timeout, shared=shared)

    @property
    def tenant(self) -> str:
        """Whose pages this process sees, as the daemon took it from the socket's credentials."""
        return self._keeper.session.welcome.tenant

    @property
    def instance(self) -> str:
        """Name of the daemon."""
        return self._keeper.session.welcome.instance

    @property
    def boot_epoch(self) -> int:
        """A number that differs at every start of the daemon."""
        return self._keeper.session.welcome.boot_epoch

    def open(self, descriptor: Descriptor, *, model: str, salt: str = "") -> Cache:
        """The cache of one kind of state of one model.

        `model` names weights and revision, e.g. "meta-llama/Meta-Llama-3-8B@<revision>"; `salt` keeps uses apart that
        must not share pages. Raises DescriptorConflict when the id is registered with other content.
        """
        return Cache(self._keeper, descriptor, model, salt)

    def open_group(self, descriptors: Sequence[Descriptor], *, model: str, salt: str = "") -> Group:
        """Several kinds of state of one model, of which a boundary needs all: attention and checkpoints of a hybrid.

        `model` and `salt` as in `open`; pages are shared with caches of the same ones. Raises LocalError for what is no
        group, FlagMissing for a member without PREFIX_REUSE, DescriptorConflict when an id is registered with other
        content.
        """
        return Group(self._keeper, descriptors, model, salt)

    def stats(self) -> m.Stats:
        """The daemon's figures: of all tenants for its operator, else of the own one."""
        return self._keeper.use(_stats)

    def evict(
        self, descriptor_id: str | None = None, nbytes: int | None = None, *, everything: bool = False
    ) -> m.Evicted:
        """Evicts pages, leaves first: at least `nbytes`, or all that nobody holds.

        `everything` retires pinned pages too: nobody finds them any more, and they go with their last pin.
        Raises UnknownDescriptor.
        """
        if nbytes is not None and not 0 <= nbytes < 1 << 63:
            raise BadRequest(f"nbytes is {nbytes}: it must lie between 0 and 2**63 - 1, or be left out")
        wanted = descriptor_id or "", nbytes or 0, everything
        return self._keeper.use(lambda session: session.call(m.Evict(session.number(), *wanted), m.Evicted))

    def push(self, keys: Keys, peer: str, *, within: float | None = None) -> Pushed:
        """Has the daemon of another host pull `keys` from here; waits until it has them, `within` seconds at most.

        `keys` is a chain from its root, `peer` the address or instance name of a connected peer. Raises BadRequest
        for a peer that is none.
        """
        return fetching.push(self._keeper, keys, peer, within)

    def peers(self) -> h.Peers:
        """Other hosts that the daemon knows, how quick the way to each is, and how the directory is."""
        return self._keeper.use(lambda session: session.call(h.GetPeers(session.number()), h.Peers))

    def close(self) -> None:
        """Ends the session. Arrays from hits must not be used any more."""
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _stats(session: Session) -> m.Stats:
    """All pages of figures as one; a tenant whose arenas stand on several is there once."""
    stats = session.call(m.GetStats(session.number()), m.Stats)
    while stats.next:
        more = session.call(m.GetStats(session.number(), stats.next), m.Stats)
        tenants = {tenant.tenant: tenant for tenant in (*more.tenants, *stats.tenants)}
        stats = msgspec.structs.replace(
            more, arenas=[*stats.arenas, *more.arenas], tenants=list(tenants.values())
        )
    return stats


def _spelt(address: str | os.PathLike[str]) -> str:
    """Raises BadRequest."""
    if isinstance(address, os.PathLike):
        return f"unix:{os.fspath(address)}"
    if not isinstance(address, str):
        raise BadRequest(f"socket address {address!r}: write 'unix:/path/to/socket', or give its path")
    return address


def connect(address: Address = None, *, timeout: float = 30.0, shared: bool = True) -> Client:
    """Connects to the daemon; see Client."""
    return Client(address, timeout=timeout, shared=shared)
