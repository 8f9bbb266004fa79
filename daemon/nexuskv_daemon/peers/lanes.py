"""Pulling over one data connection: the pages of a batch, each with an outcome.

Owns a transport's connection to one peer, made when it is needed and made anew after it ended. Drives it by the
descriptor that becomes readable. Knows nothing of what a page is.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nexuskv.errors import LocalError
from nexuskv_transport.base import Connection, Outcome, Pull, Region, Transport


class Piece(NamedTuple):
    """Bytes at `offset` of a peer's region, as many as `into` takes."""

    region: Region
    offset: int
    into: memoryview


@dataclass(slots=True, eq=False)
class _Order:
    """Pieces that were asked for together; `sent` of them the transport has taken."""

    pulls: list[Pull]
    deadline: float
    done: asyncio.Future[None]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    sent: int = 0

    def end(self, number: int, outcome: Outcome) -> None:
        self.outcomes[number] = outcome
        if len(self.outcomes) == len(self.pulls) and not self.done.done():
            self.done.set_result(None)

    def end_unsent(self, outcome: Outcome) -> None:
        """What the transport never heard of."""
        for pull in self.pulls[self.sent :]:
            self.end(pull.id, outcome)
        self.sent = len(self.pulls)


class Lane:
    """The way to a peer's data address over one transport."""

    def __init__(self, transport: Transport, address: str) -> None:
        self.address = address
        self.scheme = address.partition(":")[0]
        self._transport = transport
        self._connection: Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._orders: dict[int, _Order] = {}
        self._unsent: deque[_Order] = deque()
        self.closed = False
        self.reason = ""
        """Why the last connection ended."""

    async def pull(self, pieces: Sequence[Piece], deadline: float) -> list[Outcome]:
        """How each piece ended, by `deadline` of time.monotonic. Afterwards nothing writes into them any more.

        Not to be cancelled: the transport would go on writing.
        """
        if not pieces:
            return []
        pulls = [Pull(next(self._numbers), *piece) for piece in pieces]
        order = _Order(pulls, deadline, self._loop.create_future())
        self._orders.update((pull.id, order) for pull in pulls)
        self._unsent.append(order)
        self._feed()
        try:
            await order.done
        finally:
            for pull in pulls:
                del self._orders[pull.id]
        return [order.outcomes[pull.id] for pull in pulls]

    def close(self) -> None:
        """Ends what is outstanding as CLOSED, and likewise all that is asked for later."""
        self.closed = True
        self._hang_up()
        while self._unsent:
            self._unsent.popleft().end_unsent(Outcome.CLOSED)

    def _feed(self) -> None:
        """Offers the transport what it has not taken yet."""
        while self._unsent:
            order = self._unsent[0]
            if self.closed:
                order.end_unsent(Outcome.CLOSED)
            elif time.monotonic() >= order.deadline:
                order.end_unsent(Outcome.DEADLINE)
            else:
                self._offer(order)
            if order.sent < len(order.pulls):
                return
            self._unsent.popleft()

    def _offer(self, order: _Order) -> None:
        try:
            order.sent += self._connected().pull(order.pulls[order.sent :], order.deadline)
        except LocalError as error:  # the peer told of places that its own regions do not have
            self.reason = str(error)
            order.end_unsent(Outcome.BROKEN)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._transport.connect(self.address)
            self._loop.add_reader(self._connection.fileno(), self._collect)
        return self._connection

    def _collect(self) -> None:
        connection = self._connection
        assert connection is not None
        self._settle(connection)
        if connection.ended is not None:
            self._hang_up()
        self._feed()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self.reason = connection.ended or "closed"
        self._loop.remove_reader(connection.fileno())
        connection.close()
        self._settle(connection)

    def _settle(self, connection: Connection) -> None:
        for done in connection.completed():
            self._orders[done.id].end(done.id, done.outcome)
