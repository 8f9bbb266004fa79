"""A grant: the right to write some pages, which the daemon knows by a number, and what is written.

Owns the end of it: what is committed, given back, or dropped. Nobody else sees a page before it is committed; a process
that dies leaves nothing. How pages are asked for is the affair of each kind of grant.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from nexuskv.client.session import Session
from nexuskv.contract import Content
from nexuskv.errors import BadRequest, Closed, DeadlineExceeded, Disconnected, NexusError, RemoteError
from nexuskv.ipc.mapping import Array, MappedSegment
from nexuskv.native import fill
from nexuskv.protocol import messages as m

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
            self._warn()

    def _warn(self) -> None:
        warnings.warn("a reservation was dropped unfinished: use it in a with", ResourceWarning, 3, self)


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
