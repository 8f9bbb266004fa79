"""A reservation: slots to write, then to commit or give back.

Owns how pages of one descriptor are asked for, and the answers that are still to come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from nexuskv.client.grant import Contents, Grant, WritablePage, copy_pages
from nexuskv.client.hit import Keys
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.errors import DeadlineExceeded, NexusError
from nexuskv.ipc.mapping import MappedSegment
from nexuskv.protocol import messages as m
from nexuskv.protocol.messages import SLOT_BITS, SLOT_MASK


class ReservedPage(WritablePage, eq=False):
    """A page of a chain, which can be committed by itself. Not of an append: those are committed as a whole."""

    @property
    def tokens(self) -> range:
        """Positions of the tokens to be written, counted from the first key that was asked for, or in the branch."""
        return self._owner.span(self.position)

    @property
    def rows(self) -> slice:
        """Where these tokens are on the page's axis of tokens."""
        start = self.tokens.start % self._owner.page_tokens
        return slice(start, start + len(self.tokens))

    @property
    def _owner(self) -> PageGrant:
        assert isinstance(self._grant, PageGrant)
        return self._grant

    def commit(self) -> None:
        """Publishes this page now, without waiting. A page comes after the one before it. Raises Closed."""
        self._grant.commit_one(self._place)


class PageGrant(Grant):
    """The right to write pages of one descriptor, in order."""

    def __init__(self, session: Session, descriptor: Descriptor) -> None:
        super().__init__(session)
        self._descriptor = descriptor
        self._arena = session.arena(descriptor)
        # Pages are made when they are asked for: kept here they would keep their grant, and nobody would end it.
        self._asked_for: Keys = ()
        self._positions: list[int] = []
        self._handles: list[int] = []
        self._segments: dict[int, MappedSegment] = {}

    @property
    def page_tokens(self) -> int:
        """Tokens of a full page."""
        return self._descriptor.page_tokens

    def span(self, position: int) -> range:
        """Positions of the tokens to be written into the page at `position`."""
        return range(position * self.page_tokens, (position + 1) * self.page_tokens)

    def _add(self, positions: list[int], handles: list[int], keys: Keys, offset: int) -> None:
        """Pages granted, by their places among those asked for from `offset` on; `keys` are all."""
        mapped = self._session.writable[self._arena]
        self._segments |= {number: mapped[number] for number in {handle >> SLOT_BITS for handle in handles}}
        self._positions += [offset + position for position in positions] if offset else positions
        self._handles += handles
        self._asked_for = keys
        self._places = len(self._handles)

    def __iter__(self) -> Iterator[ReservedPage]:
        return map(self._page, range(self._places))

    def __getitem__(self, index: int) -> ReservedPage:
        return self._page(range(self._places)[index])

    def _page(self, place: int) -> ReservedPage:
        position, handle = self._positions[place], self._handles[place]
        segment = self._segments[handle >> SLOT_BITS]
        return ReservedPage(self, place, self._asked_for[position], position, segment, handle & SLOT_MASK)


class Reservation(PageGrant):
    """A sequence of pages to write. Leaving its `with` commits them, an exception aborts. `busy` counts pages.

    `keys` are the pages of a chain, or of what comes in it after the resident page `parent`. They are asked for by
    `begin`; what the daemon answers is read when it is needed for the first time, so the errors of a grant may come
    from there: ArenaFull, ParentMissing, Disconnected.
    """

    def __init__(self, session: Session, descriptor: Descriptor, keys: Keys, parent: bytes) -> None:
        self._keys = list(keys)
        self._parent = parent
        self._asked = 0  # the request under way
        super().__init__(session, descriptor)

    def begin(self) -> None:
        """Asks for the first pages, as many as a message takes. Raises Disconnected."""
        if not self._keys:
            return
        self._asked = self._session.number()  # first: a signal's handler may raise once it is sent
        self._session.begin(self._request(self._asked, 0))

    def settle(self) -> None:
        """Waits for the grant, if it is still under way. Raises what the daemon refuses it with; it is over then."""
        if not self._asked:
            return
        try:
            self._collect()
        except DeadlineExceeded:
            self._end()
            if self._number:  # the first keys were granted, and a late refusal of others would not end that
                self._session.orphan(m.Abort(0, self._number))
            raise
        except BaseException:
            self.abort()
            raise

    def _collect(self) -> None:
        granted = self._first()
        for at in range(0, len(self._keys), m.MAX_KEYS):
            if at:
                granted = self._session.call(self._request(self._session.number(), at), m.Reserved)
            self._take(granted, at)
            if granted.busy and self._descriptor.chained:
                return  # nothing can hang below a page that somebody else may still abort

    def _first(self) -> m.Reserved:
        """The answer to `begin`. After a deadline it is still to come; else nothing is under way any more."""
        try:
            granted = self._session.finish(self._asked, m.Reserved)
            self._number = granted.reservation
        except DeadlineExceeded:
            raise
        except NexusError:
            self._asked = 0
            raise
        except BaseException:  # a signal's handler: nobody else knows what was granted
            self._session.hang_up()
            raise
        self._asked = 0
        return granted

    def _request(self, number: int, at: int) -> m.Reserve:
        parent = self._keys[at - 1] if at else self._parent
        return m.Reserve(number, self._arena, self._keys[at : at + m.MAX_KEYS], parent, self._number)

    def _take(self, granted: m.Reserved, offset: int) -> None:
        """The pages granted among the keys from `offset` on."""
        self._number = granted.reservation
        self._busy += granted.busy
        self._add(granted.positions, granted.handles, self._keys, offset)

    @property
    def busy(self) -> int:
        """Pages that somebody else is writing now."""
        self.settle()
        return self._busy

    def __len__(self) -> int:
        self.settle()
        return self._places

    def __iter__(self) -> Iterator[ReservedPage]:
        self.settle()
        return super().__iter__()

    def __getitem__(self, index: int) -> ReservedPage:
        self.settle()
        return super().__getitem__(index)

    def fill(self, sources: Contents) -> None:
        """Copies whole pages: `sources[i]` is all of page i of the keys asked for, page_bytes in one piece.

        Those of pages that are not to be written are not looked at. Quicker than an assignment a page: it is one call,
        without the GIL, and large pages go past the CPU's caches. No source may lie in a page that is written. Nothing
        is copied if one of them is of another size: raises BadRequest then; Closed when some pages are committed
        already.
        """
        self.settle()
        for place in range(self._places) if self._committed else range(min(1, self._places)):
            self.check(place)
        segments = [self._segments[handle >> SLOT_BITS] for handle in self._handles]
        copy_pages(segments, self._handles, self._positions, sources)

    def commit(self, *, wait: bool = True) -> None:
        self.settle()
        super().commit(wait=wait)

    def abort(self) -> None:
        """Gives back what is not committed, after the answer of the daemon if that is still to come. Idempotent."""
        if self._open and self._asked and self._session.alive:
            with contextlib.suppress(NexusError):  # refused or lost: there is nothing to give back
                self._first()
        super().abort()

    def _end(self) -> None:
        super()._end()
        if self._asked:  # nobody waited for it
            self._session.forget(self._asked)
            self._asked = 0

    def __del__(self) -> None:
        if self._open and self._asked and self._session.alive:
            self._end()
            self._warn()
        super().__del__()
