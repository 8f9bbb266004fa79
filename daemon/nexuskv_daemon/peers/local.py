"""Sessions of the peers' thread with the core: what it may do there is what a client of that tenant may.

Owns the pairing of requests and replies. Segments that come along go to the mappings. Knows nothing of other hosts.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TypeVar

from nexuskv.errors import BadRequest, NexusError
from nexuskv.protocol import messages as m
from nexuskv_daemon.peers.door import Door
from nexuskv_daemon.peers.memory import Mappings

R = TypeVar("R", bound=m.Message)


class Declined(NexusError):
    """The core refused a request; `wire` is the code of its error."""

    def __init__(self, refused: m.Refused) -> None:
        super().__init__(refused.message)
        self.wire = refused.code


class LocalSession:
    """One session, from construction to `leave`; all of it in the peers' thread."""

    def __init__(self, door: Door, mappings: Mappings, tenant: str) -> None:
        self.tenant = tenant
        self._door = door
        self._mappings = mappings
        self._number = door.inside.new_number()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[m.Message]] = {}
        self._left = False
        number, inside = self._number, door.inside
        door.call(lambda: inside.join(number, tenant, self._deliver))
        self.tell(m.Hello(self.id(), m.PROTOCOL_VERSION, "peers"))

    def id(self) -> int:
        """A fresh request id."""
        return next(self._ids)

    async def ask(self, request: m.Message, expected: type[R]) -> R:
        """The core's reply. Raises Declined."""
        waiting = self._waiting[request.id] = self._door.loop.create_future()
        self.tell(request)
        try:
            reply = await waiting
        finally:
            del self._waiting[request.id]
        if isinstance(reply, m.Refused):
            raise Declined(reply)
        if not isinstance(reply, expected):
            raise BadRequest(f"the core answered {type(request).__name__} with {type(reply).__name__}")
        return reply

    def tell(self, request: m.Message) -> None:
        """A request whose reply nobody waits for; nothing once the session has ended."""
        if self._left:
            return
        number, inside = self._number, self._door.inside
        self._door.call(lambda: inside.ask(number, request))

    def leave(self) -> None:
        """Ends the session: what it pinned and reserved is given back. No pull may write into its slots any more."""
        self._left = True
        number, inside = self._number, self._door.inside
        self._door.call(lambda: inside.leave(number))

    def _deliver(self, message: m.Message, descriptors: Sequence[int]) -> None:
        """Called in the event loop."""
        self._door.hand(self._take, message, descriptors)

    def _take(self, message: m.Message, descriptors: list[int]) -> None:
        if isinstance(message, m.Segments):
            self._mappings.adopt(self.tenant, message.segments, descriptors)
        waiting = self._waiting.get(message.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
