"""What this process exposes by tokens, who may read it, and who is reading it now.

Owns the judgement of every byte that a peer asks for: token, tenant, bounds. Loopback and TCP serve through it. Knows
nothing of how the bytes then move.
"""

import hmac
import secrets
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from nexuskv.errors import LocalError
from nexuskv_transport.base import TOKEN_BYTES, TokenRegion


class Wanted(NamedTuple):
    """One stretch that a peer asks for, as it came: nothing of it is believed."""

    token: bytes
    number: int
    nbytes: int
    offset: int


class Reader(Protocol):
    """Something that reads exposed memory, and can be made to stop."""

    def cut(self) -> None:
        """Makes it let go soon, whatever it is doing. Called from any thread."""


class Refusal(Exception):
    """A stretch that is not served; `index` is its place among those that were asked for.

    The peer is told no more than that: what is exposed to others, and why it may not read it, is none of its business.
    """

    def __init__(self, index: int, sentence: str) -> None:
        super().__init__(sentence)
        self.index = index


class _Exposed(NamedTuple):
    region: TokenRegion
    buffer: memoryview
    tenant: str
    readers: Counter[Reader]


class Regions:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._exposed: dict[int, _Exposed] = {}
        self._changed = threading.Condition()

    def expose(self, number: int, buffer: memoryview, tenant: str) -> TokenRegion:
        """A new region with a token of its own. Raises LocalError."""
        if buffer.readonly or not buffer.contiguous or not buffer.nbytes:
            raise LocalError(f"region {number}: expose writable, contiguous memory of at least a byte")
        region = TokenRegion(number, buffer.nbytes, secrets.token_bytes(TOKEN_BYTES))
        with self._changed:
            if number in self._exposed:
                raise LocalError(f"region {number} is exposed already: withdraw it first")
            self._exposed[number] = _Exposed(region, buffer.cast("B"), tenant, Counter())
        return region

    def withdraw(self, number: int) -> None:
        """Ends a region: cuts off who is reading it, and returns when nobody is. Raises LocalError."""
        with self._changed:
            exposed = self._exposed.pop(number, None)
            if exposed is None:
                raise LocalError(f"region {number} is not exposed")
            for reader in list(exposed.readers):
                reader.cut()
            self._changed.wait_for(lambda: not exposed.readers)
        exposed.buffer.release()

    def withdraw_all(self) -> None:
        """Ends every region."""
        for number in list(self._exposed):
            self.withdraw(number)

    @contextmanager
    def reading(
        self, reader: Reader, wanted: Sequence[Wanted], tenants: Collection[str]
    ) -> Iterator[list[memoryview]]:
        """The stretches themselves, which stay exposed meanwhile. Raises Refusal for the first that is not served."""
        with self._changed:
            found = [self._judged(index, each, tenants) for index, each in enumerate(wanted)]
            held = {exposed.region.number: exposed for exposed in found}.values()
            for exposed in held:
                exposed.readers[reader] += 1
            views = [
                exposed.buffer[each.offset : each.offset + each.nbytes]
                for exposed, each in zip(found, wanted, strict=True)
            ]
        try:
            yield views
        finally:
            for view in views:
                view.release()
            with self._changed:
                for exposed in held:
                    exposed.readers[reader] -= 1
                    if not exposed.readers[reader]:
                        del exposed.readers[reader]
                self._changed.notify_all()

    def _judged(self, index: int, wanted: Wanted, tenants: Collection[str]) -> _Exposed:
        exposed = self._exposed.get(wanted.number)
        if exposed is None or not hmac.compare_digest(exposed.region.token, wanted.token):
            raise Refusal(index, f"region {wanted.number} is not exposed under that token")
        if exposed.tenant not in tenants:
            raise Refusal(
                index, f"region {wanted.number} belongs to tenant {exposed.tenant!r}, which it may not read"
            )
        if not 0 < wanted.nbytes <= exposed.region.nbytes - wanted.offset or wanted.offset < 0:
            raise Refusal(
                index, f"{wanted.nbytes} bytes at {wanted.offset} lie outside region {wanted.number}"
            )
        return exposed
