"""What the peer half of the daemon asks of the core, beyond the requests that clients have.

Owns these requests, their replies and handlers. They are structs like the clients', but no part of the socket's
language: no client can send one. Sessions that do speak for another host see their tenant's pages alone, as any
session.
"""

from __future__ import annotations

from itertools import takewhile

from nexuskv import contract
from nexuskv.errors import BadRequest
from nexuskv.protocol.messages import Message, Segment
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.session import Session
from nexuskv_daemon.core.store import Store

MOST_PINNED = 65_536
"""Pages that one peer holds pinned for one tenant: it pulls and lets go, so more is a fault of its."""


class Resolve(Message, frozen=True):
    """Asks which arena serves the physical contract with this digest; the session may use it from now on."""

    digest: bytes


class Resolved(Message, frozen=True):
    """Answers `Resolve`: arena 0 when there is none; else one descriptor of it, canonical msgpack."""

    arena: int
    descriptor: bytes


class Serve(Message, frozen=True):
    """Pins like `Pin`, for a peer to pull."""

    arena: int
    keys: list[bytes]
    whole: bool


class Served(Message, frozen=True):
    """Answers `Serve`, as `Pinned` does; a checksum that is not known yet is 0."""

    hit: int
    start: int
    handles: list[int]
    checksums: list[int]


class NoteChecksums(Message, frozen=True):
    """Checksums of pages which this session has pinned or reserved; no reply."""

    arena: int
    keys: list[bytes]
    checksums: list[int]


class Inventory(Message, frozen=True):
    """Asks for the keys of all pages of the first arena with at least this number, whoever's it is."""

    first: int


class Listed(Message, frozen=True):
    """Answers `Inventory`; `next` is the number to go on with, 0 when that was the last arena."""

    keys: list[bytes]
    next: int


Asked = Resolve | Serve | NoteChecksums | Inventory


def perform(store: Store, session: Session, request: Asked) -> tuple[Message | None, list[Segment]]:
    """The reply, if there is one, and segments that must be handed out before it. Raises NexusError."""
    match request:
        case Resolve():
            return _resolve(store, session, request), []
        case Serve():
            return _serve(store, session, request)
        case NoteChecksums():
            _note(session.arena(request.arena), request)
            return None, []
        case Inventory():
            return _list(store, request), []


def _resolve(store: Store, session: Session, request: Resolve) -> Resolved:
    arena = store.arena_of(session.tenant, request.digest)
    if arena is None:
        return Resolved(request.id, 0, b"")
    session.arenas[arena.number] = arena
    return Resolved(request.id, arena.number, contract.encode(arena.descriptor))


def _serve(store: Store, session: Session, request: Serve) -> tuple[Served, list[Segment]]:
    held = sum(len(entries) for _, entries in session.hits.values())
    if held + len(request.keys) > MOST_PINNED:
        raise BadRequest(f"a peer holds {held} pages of a tenant already: release them as they are pulled")
    arena = session.arena(request.arena)
    keys = request.keys
    if arena.partial:  # what is partly filled stays: only its branch knows how far, and it may grow
        keys = list(takewhile(lambda key: key not in arena.partial, keys))
    start, entries = store.pin(arena, keys, whole=request.whole)
    handles = [entry.handle for entry in entries]
    checksums = [entry.checksum for entry in entries]
    segments = session.introduce(handles, store.memory, writable=False)
    return Served(request.id, session.hold(arena, entries), start, handles, checksums), segments


def _note(arena: Arena, request: NoteChecksums) -> None:
    for key, checksum in zip(request.keys, request.checksums, strict=True):
        entry = arena.writing.get(key) or arena.index.get(key)
        if entry is not None:
            entry.checksum = checksum


def _list(store: Store, request: Inventory) -> Listed:
    numbers = sorted(number for number in store.arenas if number >= request.first)
    keys = list(store.arenas[numbers[0]].index) if numbers else []
    return Listed(request.id, keys, numbers[1] if len(numbers) > 1 else 0)
