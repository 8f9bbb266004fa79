"""The door between the event loop and the peers' thread.

Owns how one calls the other: a queue and an eventfd into the event loop, the asyncio loop's own way back. What passes
are calls, messages and duplicated descriptors. Knows nothing of what they mean.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from nexuskv.ipc import seqpacket
from nexuskv.protocol.messages import Message
from nexuskv_daemon import outside
from nexuskv_daemon.core.effects import Abroad
from nexuskv_daemon.outside import Deliver

log = logging.getLogger(__name__)
AT_ONCE = 32
"""Calls performed before the event loop looks after its clients again."""


class Inside(Protocol):
    """The event loop, as far as the peers' thread makes it do something."""

    def new_number(self) -> int: ...

    def join(self, number: int, tenant: str, deliver: Deliver) -> None: ...

    def ask(self, number: int, request: Message) -> None: ...

    def leave(self, number: int) -> None: ...

    def reply(self, number: int, message: Message) -> None: ...


class Door:
    """`ready` is readable, for the event loop, when `drain` has calls to perform."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self.ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.loop = asyncio.new_event_loop()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- called in the peers' thread ---------------------------------------------------------------------------------

    def call(self, action: Callable[[], None]) -> None:
        """Has `action` performed in the event loop; actions keep their order."""
        self._calls.put(action)
        os.eventfd_write(self.ready, 1)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task, and holds on to it while it runs: asyncio itself would let it be collected."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error(
                "a task of the peers' thread failed by a fault of this daemon", exc_info=task.exception()
            )

    # -- called in the event loop ------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Performs what was called for; with much to do, the rest waits for the next turn."""
        os.eventfd_read(self.ready)
        for _ in range(AT_ONCE):
            try:
                action = self._calls.get_nowait()
            except Empty:
                return
            action()
        os.eventfd_write(self.ready, 1)

    def tell(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Has `action` performed in the peers' thread. False when that has ended."""
        try:
            self.loop.call_soon_threadsafe(action, *arguments)
        except RuntimeError:
            return False
        return True

    def hand(self, take: Callable[[Message, list[int]], None], message: Message, lent: Sequence[int]) -> None:
        """Passes a message to the peers' thread, with descriptors of its own.

        Segments for which there are none are not told of: peers are refused what lies in them, and all others go on.
        """
        try:
            own = seqpacket.duplicates(lent)
        except OSError as error:
            log.warning("segments cannot be mapped for peers: %s", error)
            return
        try:
            self.loop.call_soon_threadsafe(take, message, own)
        except RuntimeError:
            seqpacket.close_all(own)

    def close(self) -> None:
        """After the thread has ended."""
        os.close(self.ready)


class Performer(Protocol):
    """What the peers' thread does with what clients ask for."""

    async def perform(self, effect: Abroad) -> None:
        """Does it, and answers."""
        ...

    def dropped(self, segment: int) -> None:
        """A segment is gone."""
        ...

    def changed(self, pages: list[bytes], *, there: bool) -> None:
        """Pages became readable, or went."""
        ...


class OutsideDoor:
    """The event loop's view of the peers' thread."""

    def __init__(self, door: Door, performer: Performer) -> None:
        self._door = door
        self._performer = performer

    def perform(self, effect: Abroad) -> None:
        """Starts it in the peers' thread. When that died, clients get a miss as from a daemon without peers."""
        if not self._door.tell(self._start, effect):
            answer = outside.answer(effect.request, "the peers' thread died: see the daemon's log")
            self._door.inside.reply(effect.session, answer)

    def _start(self, effect: Abroad) -> None:
        self._door.start(self._performer.perform(effect))

    def dropped(self, segment: int) -> None:
        """Tells the peers' thread, after all that it was told before."""
        self._door.tell(self._performer.dropped, segment)

    def changed(self, pages: list[bytes], *, there: bool) -> None:
        """Tells the peers' thread."""
        self._door.tell(lambda: self._performer.changed(pages, there=there))
