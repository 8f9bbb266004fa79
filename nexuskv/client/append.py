"""An append to a branch: pages to write below its tip, committed or given back as a whole.

Owns the copying of a tail that somebody else still needs. What becomes of the branch is the branch's affair.
"""

from __future__ import annotations

from collections.abc import Callable

from nexuskv.client.reservation import PageGrant
from nexuskv.client.session import Session
from nexuskv.contract import Descriptor
from nexuskv.contract.tensors import PAGE_TOKENS
from nexuskv.errors import LocalError
from nexuskv.ipc.mapping import MappedSegment
from nexuskv.protocol import branches as b
from nexuskv.protocol.messages import SLOT_BITS, SLOT_MASK


class Append(PageGrant):
    """The absent pages of an append; those that another branch has appended already are not among them.

    `page.tokens` says which positions of the branch are to be written into a page, `page.rows` where. Leaving its
    `with` commits, and the branch ends there; an exception aborts, and the branch is as it was.
    """

    def __init__(
        self, session: Session, descriptor: Descriptor, tokens: range, ended: Callable[[bool], None]
    ) -> None:
        """`tokens` are the positions added; `ended` hears whether they were committed."""
        super().__init__(session, descriptor)
        self._tokens = tokens
        self._ended = ended
        self.copied_tokens = 0
        """Of the tail, copied into a page of the branch's own because others end at it, or read it."""

    def open(self, request: b.Append) -> bool:
        """Asks for the pages, and copies the tail if need be. Returns whether it stands in them without a copy."""
        granted = self._session.call(request, b.Appending)
        self._number = granted.reservation
        try:
            self._add(granted.positions, granted.handles, request.keys, 0)
            if granted.source != b.NO_HANDLE:
                self._copy_tail(
                    self._session.readable[self._arena][granted.source >> SLOT_BITS],
                    granted.source & SLOT_MASK,
                )
        except BaseException:
            self.abort()
            raise
        return granted.source == b.NO_HANDLE and granted.positions[:1] == [0]

    def span(self, position: int) -> range:
        size = self._descriptor.page_tokens
        start = (self._tokens.start // size + position) * size
        return range(max(start, self._tokens.start), min(start + size, self._tokens.stop))

    def commit_one(self, place: int) -> None:
        """Refused: raises LocalError."""
        self.check(place)
        raise LocalError(
            "the pages of an append are committed as a whole: leave its with, or call its commit()"
        )

    def commit(self, *, wait: bool = True) -> None:
        """Publishes all pages; the branch ends at the last one now. Raises Disconnected: then nothing was kept."""
        ends = self._open
        try:
            super().commit(wait=wait)
        except BaseException:
            if ends and not self._open:  # open: it was not sent, and may be tried again
                self._ended(False)
            raise
        if ends:
            self._ended(True)

    def abort(self) -> None:
        """Gives all pages back; the branch is as it was. Idempotent."""
        if self._open:
            super().abort()
            self._ended(False)

    def _copy_tail(self, source: MappedSegment, slot: int) -> None:
        target = self[0]
        self.copied_tokens = self._tokens.start % self._descriptor.page_tokens
        for spec in self._descriptor.tensor_specs:
            there, here = source.tensor(spec.name, slot), target[spec.name]
            if PAGE_TOKENS in spec.shape:
                rows = (slice(None),) * spec.shape.index(PAGE_TOKENS) + (slice(self.copied_tokens),)
                here[rows] = there[rows]
            else:
                here[...] = there
