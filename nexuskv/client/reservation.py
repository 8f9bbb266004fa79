"""A reservation: slots to write, then to commit or give back.

Owns the right to write its pages. Nobody else sees a page before it is committed; a process that dies leaves nothing.
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
from nexuskv.contract import Descriptor
from nexuskv.errors import Closed, Disconnected, RemoteError
from nexuskv.ipc.mapping import Array, MappedSegment
from nexuskv.protocol import messages as m


class WritablePage:
    """One page to fill: `page[name][...] = array`. `position` is the place of its key in the keys asked for."""

    __slots__ = ("_place", "_reservation", "_segment", "_slot", "key", "position")

    def __init__(
        self,
        reservation: Reservation,
        place: int,
        key: bytes,
        position: int,
        segment: MappedSegment,
        slot: int,
    ) -> None:
        self._reservation = reservation
        self._place = place
        self._segment = segment
        self._slot = slot
        self.key = key
        self.position = position

    def __getitem__(self, name: str) -> Array:
        """The tensor `name`, writable until the page is committed."""
        self._reservation.check(self._place)
        return self._segment.tensor(name, self._slot)

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """All bytes of the page, uint8[page_bytes], writable until the page is committed."""
        self._reservation.check(self._place)
        return self._segment.page(self._slot)

    @property
    def tokens(self) -> range:
        """Positions of the tokens to be written, counted from the first key that was asked for, or in the branch."""
        return self._reservation.span(self.position)

    @property
    def rows(self) -> slice:
        """Where these tokens are on the page's axis of tokens."""
        tokens = self.tokens
        start = tokens.start % self._reservation.page_tokens
        return slice(start, start + len(tokens))

    def commit(self) -> None:
        """Publishes this page now, without waiting. A page comes after the one before it. Raises Closed."""
        self._reservation.commit_page(self._place)


class Reservation:
    """A sequence of pages to write. Leaving its `with` commits them, an exception aborts."""

    def __init__(self, session: Session, descriptor: Descriptor) -> None:
        self._session = session
        # While this is held, a daemon started meanwhile knows that these slots may still be written.
        self._reader = session.reader
        self._descriptor = descriptor
        self._number = 0
        self._pages: list[WritablePage] = []
        self._committed: set[int] = set()
        self._open = True
        self.busy = 0
        """Pages that somebody else is writing now."""

    def extend(self, arena: int, keys: list[bytes], parent: bytes, offset: int) -> bool:
        """Asks for the absent pages among `keys`, which begin at `offset` of all. False if some are busy."""
        request = m.Reserve(self._session.number(), arena, keys, parent, self._number)
        granted = self._session.call(request, m.Reserved)
        self._number = granted.reservation
        self.busy += granted.busy
        self._take(arena, keys, granted.positions, granted.handles, offset)
        return not granted.busy

    def _take(
        self, arena: int, keys: list[bytes], positions: list[int], handles: list[int], offset: int
    ) -> None:
        segments = self._session.writable[arena]
        for position, handle in zip(positions, handles, strict=True):
            segment, slot = segments[handle >> SLOT_BITS], handle & SLOT_MASK
            page = WritablePage(self, len(self._pages), keys[position], offset + position, segment, slot)
            self._pages.append(page)

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[WritablePage]:
        return iter(self._pages)

    def __getitem__(self, index: int) -> WritablePage:
        return self._pages[index]

    @property
    def page_tokens(self) -> int:
        """Tokens of a full page."""
        return self._descriptor.page_tokens

    def span(self, position: int) -> range:
        """Positions of the tokens to be written into the page at `position`."""
        return range(position * self.page_tokens, (position + 1) * self.page_tokens)

    def check(self, place: int) -> None:
        """Raises Closed when the page at `place` must not be written any more."""
        if not self._open or place in self._committed:
            raise Closed("this page is committed or given back: it is not yours to write any more")
        self._session.check()

    def commit_page(self, place: int) -> None:
        """Publishes one page without waiting for the daemon; `commit` makes sure of all."""
        self.check(place)
        self._session.tell(m.Commit(0, self._number, [place]))
        self._committed.add(place)

    def commit(self, *, wait: bool = True) -> None:
        """Publishes all pages and ends the reservation. Raises Disconnected: then nothing uncommitted was kept.

        Without `wait` it is sent and not waited for, so that the next pages can be reserved and filled meanwhile: this
        session's later calls come after it, and their success tells that it arrived.
        """
        if not self._open:
            return
        self._session.check()
        self._end()
        if not self._number:
            return
        if not wait:
            self._session.tell(m.Commit(0, self._number, [], rest=True))
            return
        request = m.Commit(self._session.number(), self._number, [], rest=True)
        done = self._session.call(request, m.Committed)
        if done.pages != len(self._pages):
            raise RemoteError(f"the daemon committed {done.pages} of {len(self._pages)} pages")

    def abort(self) -> None:
        """Gives back what is not committed. Idempotent; a daemon that is gone gave it back already."""
        if not self._open:
            return
        self._end()
        if self._number and self._session.alive:
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
        if self._open and self._number and self._session.alive:
            self._session.orphan(m.Abort(0, self._number))
            warnings.warn("a reservation was dropped unfinished: use it in a with", ResourceWarning, 2, self)
