"""Every message that crosses the Unix socket, as msgspec structs.

Owns the wire form: each struct is a msgpack array `[tag, id, field, ...]`, so a C client needs no map lookups, and a
field added at the end with a default is understood by both sides. Knows nothing of sockets or of what the daemon does.

`id` pairs a reply with its request. Any request may have id 0: it gets no reply unless it is refused. So do `Commit`,
`Abort`, `Release` and `DropBranches` where nobody waits; they are done in order, so the reply to a later request tells
that they arrived. A *handle* is one integer, `segment << SLOT_BITS | slot`: its byte offset in the segment is
`slot * slot_bytes`, its length the descriptor's `page_bytes`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from nexuskv.protocol.stats import ArenaStats, TenantStats

PROTOCOL_VERSION = 1
KEY_BYTES = 32
MAX_KEYS = 4096
MAX_MEMBERS = 64
"""Descriptors of a group."""
MAX_MESSAGE_BYTES = 192 * 1024
ARENAS_A_REPLY = 200
MAX_DESCRIPTORS = 250
"""File descriptors a message may carry: the kernel's SCM_MAX_FD is 253."""
SLOT_BITS = 32
SLOT_MASK = (1 << SLOT_BITS) - 1
"""Of a handle: segment in the high half, slot in the low one."""

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Keys = Annotated[list[Key], Meta(max_length=MAX_KEYS)]
U32 = Annotated[int, Meta(ge=0, lt=2**32)]
U63 = Annotated[int, Meta(ge=0, le=2**63 - 1)]

PRESENT, NEVER_SEEN, EVICTED, OTHER_DESCRIPTOR, BEING_WRITTEN = range(5)
"""What `Found.states` says of a key, one byte each."""


class Message(msgspec.Struct, array_like=True, frozen=True):
    """What every message begins with."""

    id: U63


class Hello(Message, frozen=True, tag="hello"):
    """First message of a session. The daemon takes the tenant from SO_PEERCRED, never from here."""

    version: int
    client: Annotated[str, Meta(max_length=200)] = ""


class Register(Message, frozen=True, tag="register"):
    """Announces a descriptor (canonical msgpack); its arena number holds for this session's tenant."""

    descriptor: bytes


class Lookup(Message, frozen=True, tag="lookup"):
    """Asks what is known of each key. Pins nothing and refreshes nothing."""

    arena: U32
    keys: Keys


class Measure(Message, frozen=True, tag="measure"):
    """Asks for a chain's longest restorable boundary, the one that `Pin` would find. Pins and refreshes nothing."""

    arena: U32
    keys: Keys


class Pin(Message, frozen=True, tag="pin"):
    """Ends the hits `released`, then pins the longest restorable boundary of `keys`; with `whole`, all or nothing."""

    arena: U32
    keys: Keys
    whole: bool = False
    released: Annotated[list[U63], Meta(max_length=MAX_KEYS)] = []


class Reserve(Message, frozen=True, tag="reserve"):
    """Asks for a slot for every absent key of a chain; all of them or none.

    `parent` is the page before `keys[0]`, empty at the root of a chain. `reservation` other than 0 adds to that one.
    """

    arena: U32
    keys: Keys
    parent: Annotated[bytes, Meta(max_length=KEY_BYTES)] = b""
    reservation: U63 = 0


class Commit(Message, frozen=True, tag="commit"):
    """Publishes pages of a reservation by their place in it, parents first; of a group's, boundaries.

    `rest` takes all that remain, in order, and ends the reservation; `pages` is empty then.
    """

    reservation: U63
    pages: Annotated[list[U32], Meta(max_length=MAX_KEYS)]
    rest: bool = False


class Abort(Message, frozen=True, tag="abort"):
    """Gives back every page of a reservation that is not committed yet, and ends it."""

    reservation: U63


class Release(Message, frozen=True, tag="release"):
    """Ends hits: their pins go."""

    hits: Annotated[list[U63], Meta(max_length=MAX_KEYS)]


class GetStats(Message, frozen=True, tag="stats"):
    """Asks for the daemon's figures: all of them for its operator, else those of the own tenant.

    A reply describes ARENAS_A_REPLY arenas at most, from number `first` on; its `next` says how to go on.
    """

    first: U32 = 0


class Evict(Message, frozen=True, tag="evict"):
    """Evicts at least `nbytes` of a descriptor's pages, leaves first; `everything` retires pinned pages too."""

    descriptor_id: str = ""
    nbytes: U63 = 0
    everything: bool = False


class Attach(Message, frozen=True, tag="attach"):
    """Asks for the shared index of the session's tenant; once a session."""


class Map(Message, frozen=True, tag="map"):
    """Asks for descriptors of segments that the session has none of yet.

    Those that are gone, or of an arena that it did not register, are passed over; a session that registered none at
    all, which reads by key alone, gets any of its tenant.
    """

    segments: Annotated[list[U32], Meta(max_length=MAX_KEYS)]


class Drain(Message, frozen=True, tag="drain"):
    """Stops the daemon and leaves its objects in place for the next one. For its operator."""


class Part(msgspec.Struct, array_like=True, frozen=True):
    """One member's keys in `ReserveGroup`, as many for each boundary; `parent` as in `Reserve`."""

    arena: U32
    keys: Keys
    parent: Annotated[bytes, Meta(max_length=KEY_BYTES)] = b""


class ReserveGroup(Message, frozen=True, tag="reserve_group"):
    """Asks for a slot for every absent key of `boundaries` boundaries, which are committed one by one and each whole.

    MAX_KEYS keys at most, of all members together. `reservation` other than 0 adds to that one.
    """

    boundaries: Annotated[int, Meta(ge=1, le=MAX_KEYS)]
    parts: Annotated[list[Part], Meta(min_length=1, max_length=MAX_MEMBERS)]
    reservation: U63 = 0


class ComputeCost(msgspec.Struct, array_like=True, frozen=True):
    """What computing n tokens after s costs: `n * (a + q * (2 s + n))` seconds; zeros when the engine does not say."""

    seconds_per_token: float = 0.0
    seconds_per_token_squared: float = 0.0


class Fetch(Message, frozen=True, tag="fetch"):
    """Asks that the absent part of `keys`, page keys of the descriptor with `digest`, be pulled from another host.

    Answered within `milliseconds`, with what came by then. `parent` is the page before `keys[0]`, empty at the root,
    and `before` how many pages come before it. What would take longer to pull than `cost` is not pulled.
    """

    digest: Key
    keys: Keys
    milliseconds: U32
    parent: Annotated[bytes, Meta(max_length=KEY_BYTES)]
    before: U32
    cost: ComputeCost


class Push(Message, frozen=True, tag="push"):
    """Asks that `peer`, an address or instance name, be told to pull `keys` from here; answered when it has them.

    `parent` is the page before `keys[0]`, empty at the root of the chain.
    """

    keys: Keys
    peer: Annotated[str, Meta(max_length=300)]
    milliseconds: U32
    parent: Annotated[bytes, Meta(max_length=KEY_BYTES)]


class GetPeers(Message, frozen=True, tag="peers"):
    """Asks for the figures of all other hosts that the daemon knows."""


class Segment(msgspec.Struct, array_like=True, frozen=True):
    """One segment of `Segments`; `slots * slot_bytes` is what may be mapped of it."""

    segment: int
    arena: int
    slots: int
    slot_bytes: int
    writable: bool


class Welcome(Message, frozen=True, tag="welcome"):
    """Answers `Hello`."""

    version: int
    boot_epoch: int
    instance: str
    tenant: str
    release: str


class Registered(Message, frozen=True, tag="registered"):
    """Answers `Register`."""

    arena: int


class Attached(Message, frozen=True, tag="attached"):
    """Answers `Attach`, with three file descriptors: index for reading, touch and pin object for writing.

    The pin object's open file description carries a lock: while it is open somewhere, the pins hold, whatever becomes
    of the connection.
    """

    session: int


class Found(Message, frozen=True, tag="found"):
    """Answers `Lookup`: a state byte a key; `others` has the places of keys that another descriptor owns, by its id."""

    states: bytes
    others: dict[str, list[int]] = {}


class Measured(Message, frozen=True, tag="measured"):
    """Answers `Measure`: `keys[start:stop]` make the boundary, which lies at `stop`."""

    start: int
    stop: int


class Pinned(Message, frozen=True, tag="pinned"):
    """Answers `Pin`: handles of `keys[start:start + len(handles)]`; hit 0 means that nothing was pinned.

    The last page may be the tip of a branch, and lack that many tokens to be full.
    """

    hit: int
    start: int
    handles: list[int]
    lacking: int = 0


class Reserved(Message, frozen=True, tag="reserved"):
    """Answers `Reserve`: `handles[i]` is the slot for `keys[positions[i]]`; `busy` keys are being written by others.

    Reservation 0 means that nothing was granted, and there is nothing to commit or abort.
    """

    reservation: int
    positions: list[int]
    handles: list[int]
    busy: int


class ReservedGroup(Message, frozen=True, tag="reserved_group"):
    """Answers `ReserveGroup`: which boundaries have absent pages, and of each part what `Reserved` says.

    `busy` boundaries, the last ones, have pages that are being written by others, or come after such.
    """

    reservation: int
    boundaries: list[int]
    positions: list[list[int]]
    handles: list[list[int]]
    busy: int


class Committed(Message, frozen=True, tag="committed"):
    """Answers `Commit`: how many of the reservation are committed by now, earlier ones included."""

    pages: int


class Done(Message, frozen=True, tag="done"):
    """Answers requests that have nothing to give back, as `Abort`, `Release`, `Map` and `Drain`."""


class Stats(Message, frozen=True, tag="stats"):
    """Answers `GetStats`. `memory_used` counts whole segments, in bytes; `uptime` is in seconds.

    `tenants` are those of `arenas`; `next` is the arena to ask from for more, 0 when this was all.
    """

    instance: str
    release: str
    boot_epoch: int
    uptime: float
    memory_budget: int
    memory_used: int
    sessions: int
    arenas: list[ArenaStats]
    tenants: list[TenantStats]
    next: int = 0


class Evicted(Message, frozen=True, tag="evicted"):
    """Answers `Evict`: what went, and how many pages wait for their last pin."""

    pages: int
    bytes: int
    retiring: int


class Fetched(Message, frozen=True, tag="fetched"):
    """Answers `Fetch`: pages and bytes pulled, from which peer, and why not more (empty when nothing is absent now)."""

    pages: int
    bytes: int
    source: str
    reason: str


class Pushed(Message, frozen=True, tag="pushed"):
    """Answers `Push`: how many leading pages of the keys the peer has now, and why not more."""

    pages: int
    reason: str


class PathStats(msgspec.Struct, frozen=True):
    """Pulls from a peer over one transport: averages as those of `PeerStats`, bytes pulled, why it is not taken."""

    name: str
    latency: float
    bandwidth: float
    bytes_in: int
    trouble: str


class PeerStats(msgspec.Struct, frozen=True):
    """Another host. `state` is connected, connecting, resting (it failed lately), gone, or myself.

    `latency` in seconds and `bandwidth` in bytes a second are moving averages of pulls over `path`, 0 when unknown;
    counters run since the daemon's start. `bad_pages` came with another checksum or length than was told, and were
    dropped. `trouble` is what last went wrong, "" if nothing did. `paths` are all that pages could come over.
    """

    address: str
    instance: str
    state: str
    path: str
    latency: float
    bandwidth: float
    pages_in: int
    bytes_in: int
    pages_out: int
    bad_pages: int
    failures: int
    trouble: str
    paths: list[PathStats]


class Peers(Message, frozen=True, tag="peerlist"):
    """Answers `GetPeers`. `directory` says how it is: none, up, or why it is not asked just now."""

    peers: list[PeerStats]
    directory: str


class Refused(Message, frozen=True, tag="refused"):
    """Answers any request that failed: `code` is an error's wire name, `message` says what to do."""

    code: str
    message: str
    numbers: dict[str, int] = {}


class Segments(Message, frozen=True, tag="segments"):
    """Comes unasked, before a reply with handles into these segments: file descriptor i belongs to `segments[i]`.

    A session gets each segment once in each access mode, at most MAX_DESCRIPTORS a message.
    """

    segments: list[Segment]


class Dropped(Message, frozen=True, tag="dropped"):
    """Comes unasked: these segments are gone from the daemon; the client unmaps them."""

    segments: list[int]
