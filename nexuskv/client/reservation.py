"""A reservation: slots to write, then to commit or give back.

Owns the right to write pages: those of one descriptor here, boundaries of a group in `group_reservation`. Nobody else
sees a page before it is committed; a process that dies leaves nothing.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from nexuskv.client.session import SLOT_BITS, SLOT_MASK, Session
from nexuskv.errors import Closed, Disconnected, RemoteError
from nexuskv.ipc.mapping import Array, MappedSegment
from nexuskv.protocol import messages as m


class WritablePage:
    """One page to fill: `page[name][...] = array`. `position` is the place of its key in the keys asked for."""

    __slots__ = ("_grant", "_place", "_segment", "_slot", "key", "position")

    def __init__(
        self, grant: Grant, place: int, key: bytes, position: int, segment: MappedSegment, slot: int
    ) -> None:
        self._grant = grant
        self._place = place
        self._segment = segment
        self._slot = slot
        self.key = key
        self.position = position

    def __getitem__(self, name: str) -> Array:
        """The tensor `name`, writable until the page is committed."""
        self._grant.check(self._place)
        return self._segment.tensor(name, self._slot)

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """All bytes of the page, uint8[page_bytes], writable until the page is committed."""
        self._grant.check(self._place)
        return self._segment.page(self._slot)


class ReservedPage(WritablePage):
    """A page of a reservation, which can be committed by itself."""

    __slots__ = ()

    def commit(self) -> None:
        """Publishes this page now, without waiting. A page comes after the one before it. Raises Closed."""
        self._grant.commit_one(self._place)


class Grant:
    """The right to write some pages, which the daemon knows by a number. What is committed at once has a place in it.

    Leaving its `with` commits all that remains, an exception aborts.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        # While this is held, a daemon started meanwhile knows that these slots may still be written.
        self._reader = session.reader
        self._number = 0
        self._places = 0
        self._committed: set[int] = set()
        self._open = True
        self.busy = 0
        """What was not granted because somebody else is writing it now."""

    def __len__(self) -> int:
        return self._places

    def check(self, place: int) -> None:
        """Raises Closed when what is at `place` must not be written any more."""
        if not self._open or place in self._committed:
            raise Closed("this page is committed or given back: it is not yours to write any more")
        self._session.check()

    def commit_one(self, place: int) -> None:
        """Publishes what is at `place` without waiting for the daemon; `commit` makes sure of all."""
        self.check(place)
        self._session.tell(m.Commit(0, self._number, [place]))
        self._committed.add(place)

    def commit(self, *, wait: bool = True) -> None:
        """Publishes all that remains and ends the grant. Raises Disconnected: then nothing uncommitted was kept.

        Without `wait` it is sent and not waited for, so that the next pages can be reserved and filled meanwhile: this
        session's later calls come after it, and their success tells that it arrived.
        """
        if not self._open:
            return
        self._session.check()
        self._end()
        if not self._places:
            return
        if not wait:
            self._session.tell(m.Commit(0, self._number, [], rest=True))
            return
        request = m.Commit(self._session.number(), self._number, [], rest=True)
        done = self._session.call(request, m.Committed)
        if done.pages != self._places:
            raise RemoteError(f"the daemon committed {done.pages} of {self._places}")

    def abort(self) -> None:
        """Gives back what is not committed. Idempotent; a daemon that is gone gave it back already."""
        if not self._open:
            return
        self._end()
        if self._places and self._session.alive:
            with contextlib.suppress(Disconnected):
                self._session.call(m.Abort(self._session.number(), self._number), m.Done)

    def _end(self) -> None:
        self._open = False
        self._reader = None  # nothing is written from here on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.abort()

    def __del__(self) -> None:
        if self._open and self._places and self._session.alive:
            self._session.orphan(m.Abort(0, self._number))
            warnings.warn("a reservation was dropped unfinished: use it in a with", ResourceWarning, 2, self)


class Reservation(Grant):
    """A sequence of pages to write. Leaving its `with` commits them, an exception aborts. `busy` counts pages."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._pages: list[ReservedPage] = []

    def extend(self, arena: int, keys: list[bytes], parent: bytes, offset: int) -> bool:
        """Asks for the absent pages among `keys`, which begin at `offset` of all. False if some are busy."""
        request = m.Reserve(self._session.number(), arena, keys, parent, self._number)
        granted = self._session.call(request, m.Reserved)
        self._number = granted.reservation
        self.busy += granted.busy
        segments = self._session.writable[arena]
        for position, handle in zip(granted.positions, granted.handles, strict=True):
            segment = segments[handle >> SLOT_BITS]
            page = ReservedPage(
                self, len(self._pages), keys[position], offset + position, segment, handle & SLOT_MASK
            )
            self._pages.append(page)
        self._places = len(self._pages)
        return not granted.busy

    def __iter__(self) -> Iterator[ReservedPage]:
        return iter(self._pages)

    def __getitem__(self, index: int) -> ReservedPage:
        return self._pages[index]
