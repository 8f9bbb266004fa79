"""One connection between two daemons, after both said hello: either end asks, either end answers.

Owns the pairing of requests and replies, the order in which requests are served, and the signs of life. Knows nothing
of what is asked. When it ends, in whatever way, `on_end` hears of it, and whoever waits for a reply gets LinkLost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from nexuskv.errors import BadRequest, NexusError
from nexuskv.protocol import messages as m
from nexuskv_daemon.peers import messages as p

log = logging.getLogger(__name__)
R = TypeVar("R", bound=m.Message)
HELLO_SECONDS = 5.0
PING_SECONDS = 2.0
"""How long an end hears nothing but pings before it sends one."""
SILENT_SECONDS = 6.0
"""Without an answer for so long a peer is taken for dead: what it pinned is let go."""
LAST_WORDS_SECONDS = 1.0
READ_BYTES = 1 << 18
LINGER_SECONDS = 0.02
"""What wants no reply at once waits so long for a message to go with: each that comes wakes the other host."""
QUEUED = 64
"""Requests of a peer that wait: it is not read from while there are more."""


class LinkLost(NexusError):
    """The peer is gone, or was given up; the sentence says why."""


class PeerRefused(NexusError):
    """The peer answered with a refusal: its words."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The bytes of a connection, and who is at its other end as far as that is proved."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    name: str
    tenants: frozenset[str]


Serve = Callable[[p.Request], Awaitable[p.AnyMessage | None]]
"""Answers one request; what it raises as NexusError is sent as a refusal."""


async def greet(wire: Wire, mine: p.Hello) -> tuple[p.Hello, p.Frames, list[p.AnyMessage]]:
    """Says hello and hears theirs; with it what came behind it. Raises LinkLost."""
    frames = p.Frames()
    wire.writer.write(p.frame(mine))
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            found: list[p.AnyMessage] = []
            while not found:
                data = await wire.reader.read(READ_BYTES)
                if not data:
                    raise LinkLost("it hung up before it said hello")
                found = frames.feed(data)
        if isinstance(found[0], p.Refused):
            raise LinkLost(f"it refused: {found[0].message}")
        return p.check_hello(found[0]), frames, found[1:]
    except p.BadPeer as error:
        wire.writer.write(p.frame(p.Refused(0, BadRequest.code, str(error))))
        raise LinkLost(str(error)) from None
    except TimeoutError:
        raise LinkLost(f"it did not say hello within {HELLO_SECONDS:.0f} s") from None
    except OSError as error:
        raise LinkLost(str(error)) from error


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Closes a connection; one whose end does not read what is left is cut off."""
    writer.close()
    try:
        async with asyncio.timeout(LAST_WORDS_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


class Link:
    """A greeted connection. `theirs` is the peer's hello; `on_pong` hears of round trips, in seconds."""

    def __init__(self, wire: Wire, theirs: p.Hello, frames: p.Frames, early: list[p.AnyMessage]) -> None:
        self.name = wire.name
        self.tenants = wire.tenants
        self.theirs = theirs
        self.ended = ""
        self.on_regions: Callable[[p.Regions], None] = lambda _: None
        self.on_pong: Callable[[float], None] = lambda _: None
        self._wire = wire
        self._frames = frames
        self._early = early
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[p.AnyMessage]] = {}
        self._requests: asyncio.Queue[p.Request] = asyncio.Queue(QUEUED)
        self._lingering = bytearray()
        self._heard = 0.0  # when something came that was no ping, by time.monotonic

    def id(self) -> int:
        """A fresh request id."""
        return next(self._ids)

    async def run(self, serve: Serve) -> None:
        """Serves until the link ends."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read())
                group.create_task(self._answer(serve))
                group.create_task(self._keep_alive())
        except* (LinkLost, OSError) as errors:
            self.close(str(errors.exceptions[0]) or "the connection broke")
        finally:
            self.close("the daemon is stopping")
            await hang_up(self._wire.writer)

    async def ask(self, request: p.Request, expected: type[R]) -> R:
        """The peer's reply. Raises LinkLost, PeerRefused; a reply of another kind costs the link."""
        if self.ended:
            raise LinkLost(self.ended)
        waiting = self._waiting[request.id] = asyncio.get_running_loop().create_future()
        self._send(p.frame(request))
        try:
            reply = await waiting
        finally:
            del self._waiting[request.id]
        if isinstance(reply, p.Refused):
            raise PeerRefused(reply.message)
        if not isinstance(reply, expected):
            self.close(f"it answered {type(request).__name__} with {type(reply).__name__}")
            raise LinkLost(self.ended)
        return reply

    def tell(self, message: p.AnyMessage) -> None:
        """Sends what wants no reply; nothing when the link has ended."""
        if not self.ended:
            self._send(p.frame(message))

    def tell_soon(self, message: p.AnyMessage) -> None:
        """As `tell`, with the next message or after a moment."""
        if not self._lingering:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._send, b"")
        self._lingering += p.frame(message)

    def _send(self, data: bytes) -> None:
        if self.ended:
            return
        self._wire.writer.write(bytes(self._lingering) + data)
        self._lingering.clear()

    def close(self, why: str) -> None:
        """Ends the link. Idempotent: the first reason stays."""
        if self.ended:
            return
        self.ended = why
        self._wire.writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LinkLost(why))

    async def _read(self) -> None:
        try:
            await self._sort(self._early)
            while data := await self._wire.reader.read(READ_BYTES):
                await self._sort(self._frames.feed(data))
        except p.BadPeer as error:
            self.tell(p.Refused(0, BadRequest.code, str(error)))
            raise LinkLost(str(error)) from None
        raise LinkLost("it hung up")

    async def _sort(self, messages: list[p.AnyMessage]) -> None:
        self._listen(messages)
        for message in messages:
            if isinstance(message, p.Ping):
                self.tell(p.Pong(message.id))
            elif isinstance(message, p.Request):
                await self._requests.put(message)
            elif isinstance(message, p.Regions):
                self.on_regions(message)
            elif message.id in self._waiting:
                self._settle(message)
            elif isinstance(message, p.Refused) and not message.id:
                raise LinkLost(f"it refused: {message.message}")
            elif isinstance(message, p.Hello):
                raise p.BadPeer("a second hello")

    def _listen(self, messages: list[p.AnyMessage]) -> None:
        if not all(isinstance(message, p.Ping | p.Pong) for message in messages):
            self._heard = time.monotonic()

    def _settle(self, reply: p.AnyMessage) -> None:
        waiting = self._waiting[reply.id]
        if not waiting.done():
            waiting.set_result(reply)

    async def _answer(self, serve: Serve) -> None:
        while True:
            request = await self._requests.get()
            try:
                reply = await serve(request)
            except NexusError as error:
                reply = p.Refused(request.id, error.code, str(error)[:2000])
            if reply is not None and reply.id:
                self.tell(reply)
                await self._wire.writer.drain()

    async def _keep_alive(self) -> None:
        while True:
            if time.monotonic() - self._heard >= PING_SECONDS:
                await self._ping()
            await asyncio.sleep(PING_SECONDS)

    async def _ping(self) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                await self.ask(p.Ping(self.id()), p.Pong)
        except TimeoutError:
            raise LinkLost(f"it gave no sign of life for {SILENT_SECONDS:.0f} s") from None
        self.on_pong(time.monotonic() - started)
