"""A reservation: slots to write, then to commit or give back.

Owns the right to write its pages. Nobody else sees a page before it is committed; a process that dies leaves nothing.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from nexuskv.client.hit import Keys
from nexuskv.client.session import Session
from nexuskv.contract import Content, Descriptor
from nexuskv.errors import BadRequest, Closed, DeadlineExceeded, Disconnected, NexusError, RemoteError
from nexuskv.ipc.mapping import Array, MappedSegment
from nexuskv.native import fill
from nexuskv.protocol import messages as m
from nexuskv.protocol.messages import SLOT_BITS, SLOT_MASK

Contents: TypeAlias = "Sequence[Content] | npt.NDArray[Any]"
"""The bytes of several pages: one after the other, or along the first axis of an array."""


class WritablePage(msgspec.Struct, eq=False):
    """One page to fill: `page[name][...] = array`. `position` is the place of its key in the keys asked for."""

    _grant: Grant
    _place: int
    key: bytes
    position: int
    _segment: MappedSegment
    _slot: int

    def __getitem__(self, name: str) -> Array:
        """The tensor `name`, writable until the page is committed."""
        self._grant.check(self._place)
        return self._segment.tensor(name, self._slot)

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """All bytes of the page, uint8[page_bytes], writable until the page is committed."""
        self._grant.check(self._place)
        page: npt.NDArray[np.uint8] = self._segment.pages[self._slot]
        return page

    def fill(self, source: Content) -> None:
        """Copies all bytes of the page, as `Reservation.fill` does for many pages. Raises BadRequest."""
        self._grant.check(self._place)
        copy_pages([self._segment], [self._slot], [0], (source,))


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


class Grant:
    """The right to write some pages, which the daemon knows by a number. What is committed at once has a place in it.

    Leaving its `with` commits all that remains, an exception aborts.
    """

    _open = False  # also of one whose __init__ raised

    def __init__(self, session: Session) -> None:
        self._session = session
        # While this is held, a daemon started meanwhile knows that these slots may still be written.
        self._reader = session.reader
        self._number = 0
        self._places = 0
        self._committed: set[int] = set()
        self._kept = False  # whether what remained was committed
        self._unconfirmed = 0  # the request that was sent to commit it, while its answer is not read
        self._busy = 0
        self._open = True

    @property
    def busy(self) -> int:
        """What was not granted because somebody else is writing it now."""
        return self._busy

    def __len__(self) -> int:
        return self._places

    def check(self, place: int) -> None:
        """Raises Closed when what is at `place` must not be written any more."""
        if self._open and place not in self._committed and not self._session.left:
            return
        self._session.check()
        raise Closed("this page is committed or given back: it is not yours to write any more")

    def commit_one(self, place: int) -> None:
        """Publishes what is at `place` without waiting for the daemon; `commit` makes sure of all."""
        self.check(place)
        self._session.tell(m.Commit(0, self._number, [place]))
        self._committed.add(place)

    def commit(self, *, wait: bool = True) -> None:
        """Publishes all that remains and ends the grant. Raises Disconnected: then nothing uncommitted was kept.

        Without `wait` it is sent and not waited for, so that the next pages can be reserved and filled meanwhile: this
        session's later calls come after it, and their success tells that it arrived. After DeadlineExceeded it may be
        called again: it is sent if it was not yet, and goes on waiting. Raises Closed after an abort, or when the grant
        was refused or lost.
        """
        if not self._open:
            self._commit_again(wait=wait)
            return
        self._session.check()
        try:
            if self._number:
                self._send_commit(wait=wait)
        except DeadlineExceeded as error:
            if error.sent:
                self._end()
            raise
        except BaseException:
            with contextlib.suppress(NexusError):
                self._give_back()
            raise
        self._kept = True
        self._end()

    def _send_commit(self, *, wait: bool) -> None:
        if not wait:
            self._session.tell(m.Commit(0, self._number, [], rest=True))
            return
        self._unconfirmed = self._session.number()
        request = m.Commit(self._unconfirmed, self._number, [], rest=True)
        self._confirmed(self._session.confirm(request, m.Committed))

    def _commit_again(self, *, wait: bool) -> None:
        if not self._kept and not self._unconfirmed:
            self._session.check()
            raise Closed("nothing can be committed: this was given back, refused or lost; reserve anew")
        if self._unconfirmed and wait:
            self._session.check()
            self._confirmed(self._session.finish(self._unconfirmed, m.Committed))

    def _confirmed(self, done: m.Committed) -> None:
        self._unconfirmed = 0
        self._kept = True
        if done.pages != self._places:
            raise RemoteError(f"the daemon committed {done.pages} of {self._places}")

    def abort(self) -> None:
        """Gives back what is not committed. Idempotent; a daemon that is gone gave it back already."""
        if self._open:
            self._give_back()

    def _give_back(self) -> None:
        self._unconfirmed = 0
        self._end()
        if self._number and self._session.alive:
            try:
                self._session.call(m.Abort(self._session.number(), self._number), m.Done)
            except Disconnected:
                pass
            except DeadlineExceeded as error:
                if not error.sent:
                    self._session.orphan(m.Abort(0, self._number))
                raise

    def _end(self) -> None:
        self._open = False
        self._reader = None  # nothing is written from here on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif self._open:
            self.commit()

    def __del__(self) -> None:
        if self._open and self._number and self._session.alive:
            self._session.orphan(m.Abort(0, self._number))
            _warn(self)


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
            _warn(self)
        super().__del__()


def copy_pages(
    segments: list[MappedSegment], handles: list[int], positions: list[int], sources: Contents
) -> None:
    """Fills slots, one in each of `segments`, from `sources` at `positions`: all or none. Raises BadRequest."""
    if not segments:
        return
    first = segments[0]  # all are of one arena, so of one size
    memories = [each.memory for each in segments]
    try:
        fill(first.slot_bytes, first.pages.shape[1], memories, handles, positions, sources)
    except (TypeError, ValueError, IndexError, BufferError) as error:
        raise BadRequest(f"{error}: give the bytes of each page in one piece, C-contiguous") from error


def _warn(grant: Grant) -> None:
    warnings.warn("a reservation was dropped unfinished: use it in a with", ResourceWarning, 3, grant)
