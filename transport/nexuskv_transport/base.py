"""What every transport is: memory that peers may read, and connections that pull pages out of theirs into ours.

Owns the interface and the words of it. Knows nothing of how bytes move. What is said here is said for all transports,
and `nexuskv_transport.checks` holds each of them to it.

Remote read only: nothing that a peer sends can write to the serving side, or end it. A peer that breaks a rule, asks
for what it may not read, or names a region that is no more, loses its connection and nobody else's.

No event loop is imposed. Nothing here waits for a peer: what comes later is told by a descriptor that becomes readable,
so a selector, a test or a benchmark can drive it. Transports use threads where the kernel has no better way; the
methods of one object are called from one thread, but for `expose` and `withdraw`, which may take a while.

The rule of the extent
    From `pull` until its `Done`, the bytes of `Pull.into` are the transport's to write. Once `Done` was handed out,
    nothing writes there any more, *whatever the outcome*: a transport that gives a pull up (deadline, closing, broken
    peer) first closes the stream that could still deliver it (TCP: the socket, and its thread is out of recv; RDMA: the
    queue pair is in the error state and its completions are drained), and only then reports it. So a slot can be given
    to another page as soon as its pull is done. What the extent holds after any outcome but OK is undefined.

A connection is whole or over
    The first pull that ends otherwise than OK ends the connection, as a queue pair in error does: all other outstanding
    pulls end too (as OK if they were done already, else CLOSED), `ended` says why, later pulls end CLOSED at once.
    Whoever still wants pages connects anew.
"""

import abc
import enum
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, NamedTuple, Self

import msgspec
from msgspec import Meta

U32 = Annotated[int, Meta(ge=0, lt=2**32)]
U63 = Annotated[int, Meta(ge=0, le=2**63 - 1)]
TOKEN_BYTES = 16
Token = Annotated[bytes, Meta(min_length=TOKEN_BYTES, max_length=TOKEN_BYTES)]


class TokenRegion(msgspec.Struct, frozen=True, array_like=True, tag="token"):
    """Exposed memory that a program serves to whoever knows the unguessable token: loopback and TCP."""

    number: U32
    nbytes: U63
    token: Token


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of exposed memory that a device serves: virtual address, length, rkey."""

    address: Annotated[int, Meta(ge=0)]
    nbytes: U63
    rkey: U32


class KeyedRegion(msgspec.Struct, frozen=True, array_like=True, tag="keyed"):
    """Exposed memory that a device serves: RDMA. The chunks follow each other; a page may lie in two."""

    number: U32
    nbytes: U63
    chunks: Annotated[tuple[Chunk, ...], Meta(min_length=1)]


Region = TokenRegion | KeyedRegion
"""What a peer has to know to read exposed memory. It travels between daemons, to authenticated peers alone.

`number` is the exposing daemon's own (its segment). Each `expose` makes a region anew: one that was withdrawn never
comes back to life, also when its number does.
"""


class Pull(NamedTuple):
    """Fetch `into.nbytes` bytes at `offset` of a peer's region; of any alignment, and at least 1."""

    id: int
    """The caller's; of no two outstanding pulls of a connection the same."""
    region: Region
    offset: int
    into: memoryview
    """Writable and contiguous; inside a buffer that was `expose`d here (RDMA has no key for other memory)."""


class Outcome(enum.StrEnum):
    """How a pull ended."""

    OK = "ok"
    REFUSED = "refused"  # the peer does not serve these bytes: revoked, forged, outside, or another tenant's
    DEADLINE = "deadline"  # they did not come in time
    CLOSED = "closed"  # the connection ended before, here or there; `Connection.ended` says why
    BROKEN = "broken"  # the peer answered what no peer of this kind answers


class Done(msgspec.Struct, frozen=True):
    """The end of a pull. Each pull that was taken gets exactly one."""

    id: int
    outcome: Outcome


class Limits(NamedTuple):
    """How much of a connection may be outstanding at once (from `pull` to `completed`)."""

    pulls: int = 1024
    nbytes: int = 256 << 20
    """One pull alone may be larger."""


class Tls(msgspec.Struct, frozen=True, tag="tls"):
    """Mutual TLS: both sides show a certificate of one private authority. Paths of PEM files."""

    certificate: str
    key: str
    authority: str


class Plain(msgspec.Struct, frozen=True, tag="plain"):
    """No encryption, no proof of who is there: on loopback addresses alone, unless an operator wants it `anywhere`."""

    anywhere: bool = False


Security = Tls | Plain


class Identity(NamedTuple):
    """Who is at the other end, as far as it proved that."""

    name: str
    """For people: common name and address."""
    tenants: frozenset[str]
    """What its certificate says it may read (see `tls`); empty without a certificate."""


Admit = Callable[[Identity], Collection[str]]
"""Decides the tenants whose regions a newcomer may read; none means that it is turned away.

Called in a thread of the transport.
"""


class Connection(abc.ABC):
    """The pulling end. Made at once, also while its peer cannot be reached: pulls wait, and end by their deadlines."""

    ended: str | None
    """Why it is over, as a sentence; None while it is not."""

    @property
    @abc.abstractmethod
    def received(self) -> int:
        """Bytes of pages pulled so far."""

    @abc.abstractmethod
    def pull(self, pulls: Sequence[Pull], deadline: float) -> int:
        """Starts fetching; returns how many were taken, from the first on. Never waits.

        Fewer than all when `Limits` are reached: offer the rest after the next `completed`. When nothing is
        outstanding, at least one is taken. `deadline`, of time.monotonic, holds for all of them: none runs for longer.
        What is taken after the connection has ended is CLOSED at once.

        Raises LocalError, and takes none, for bytes outside the region as it is declared, an `into` that is read-only,
        empty or not contiguous, an id that is outstanding, or an `into` that overlaps that of an outstanding pull.
        """

    @abc.abstractmethod
    def fileno(self) -> int:
        """Readable when `completed` has something to hand out, or when the connection has just ended."""

    @abc.abstractmethod
    def completed(self) -> list[Done]:
        """What was done since the last call; also after `close`. Never waits."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends outstanding pulls as CLOSED; they are handed out by the next `completed`. Idempotent.

        When it returns, no thread and no descriptor is left: take `fileno` out of selectors before.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ServerEnd(abc.ABC):
    """The serving end of one connection or stream. It lives by itself, and ends with the peer's end or its listener."""

    ended: str | None
    """Why it is over, as a sentence; None while it is not."""
    sent: int
    """Bytes of pages sent so far; 0 where a device serves by itself."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends it now. When it returns, it reads no exposed memory any more."""


class Listener(abc.ABC):
    """Where peers connect to read what is exposed."""

    address: str
    """Where it really listens, in the form that `connect` takes."""

    @abc.abstractmethod
    def fileno(self) -> int:
        """Readable when `accept` has somebody to serve."""

    @abc.abstractmethod
    def accept(self) -> ServerEnd | None:
        """Begins to serve the next newcomer; None when there is none. Never waits.

        Its handshake goes on by itself: a peer that keeps silent, or is not admitted, costs its own end alone. Whoever
        does not want to watch ends may drop them: the listener holds those that live.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stops listening and ends all that it serves. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transport(abc.ABC):
    """One way to move bytes: what this process exposes by it, where it listens, and whom it pulls from."""

    @abc.abstractmethod
    def expose(self, number: int, buffer: memoryview, *, fd: int | None = None, tenant: str) -> Region:
        """Lets peers read `buffer` if they may read `tenant`; and lets pulls write into it.

        `buffer` is writable, contiguous shared memory of the file `fd`, and stays mapped until `withdraw`. Raises
        LocalError for a number that is exposed. From any thread, and one may wait for a device.
        """

    @abc.abstractmethod
    def withdraw(self, number: int) -> None:
        """Peers can read it no more. When it returns, nothing reads it: a pull that was being served is cut off.

        Pulls of this process into it must be done. Raises LocalError for a number that is not exposed. From any thread.
        """

    @abc.abstractmethod
    def listen(self, address: str, admit: Admit) -> Listener:
        """Serves what is exposed, now and later, to those whom `admit` allows. Raises StartupError."""

    @abc.abstractmethod
    def connect(self, address: str, limits: Limits = Limits()) -> Connection:
        """Pulls from the peer at `address`. Never waits; raises LocalError for an address that is none."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes listeners and connections, and withdraws everything. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
