"""What this process exposes by tokens, who may read it, and who is reading it now.

Owns the judgement of every byte that a peer asks for: token, tenant, bounds. Loopback and TCP serve through it. Knows
nothing of how the bytes then move.
"""

import hmac
import secrets
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from nexuskv.errors import LocalError
from nexuskv_transport.base import TOKEN_BYTES, TokenRegion

Stretch = tuple[bytes, int, int, int]
"""Token, region's number, bytes, offset: what a peer asks for, as it came; nothing of it is believed."""


class Reader(Protocol):
    """Something that reads exposed memory, and can be made to stop."""

    def cut(self) -> None:
        """Makes it let go soon, whatever it is doing. Called from any thread."""


class Refusal(Exception):
    """A stretch that is not served; `place` is its place among those that were asked for.

    The peer is told no more than that: what is exposed to others, and why it may not read it, is none of its business.
    """

    def __init__(self, place: int, sentence: str) -> None:
        super().__init__(sentence)
        self.place = place


class _Exposed:
    """A region, its memory, and who is reading it."""

    def __init__(self, region: TokenRegion, buffer: memoryview, tenant: str) -> None:
        self.region = region
        self.buffer = buffer
        self.tenant = tenant
        self.readers: set[Reader] = set()


class Regions:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._exposed: dict[int, _Exposed] = {}
        self._lock = threading.Lock()
        self._let_go = threading.Condition(self._lock)
        self._awaited = 0  # withdrawals that wait for readers

    def expose(self, number: int, buffer: memoryview, tenant: str) -> TokenRegion:
        """A new region with a token of its own. Raises LocalError."""
        if buffer.readonly or not buffer.contiguous or not buffer.nbytes:
            raise LocalError(f"region {number}: expose writable, contiguous memory of at least a byte")
        region = TokenRegion(number, buffer.nbytes, secrets.token_bytes(TOKEN_BYTES))
        with self._lock:
            if number in self._exposed:
                raise LocalError(f"region {number} is exposed already: withdraw it first")
            self._exposed[number] = _Exposed(region, buffer.cast("B"), tenant)
        return region

    def withdraw(self, number: int) -> None:
        """Ends a region: cuts off who is reading it, and returns when nobody is. Raises LocalError."""
        with self._lock:
            exposed = self._exposed.pop(number, None)
            if exposed is None:
                raise LocalError(f"region {number} is not exposed")
            for reader in exposed.readers:
                reader.cut()
            self._awaited += 1
            self._let_go.wait_for(lambda: not exposed.readers)
            self._awaited -= 1
        exposed.buffer.release()

    def withdraw_all(self) -> None:
        """Ends every region."""
        for number in list(self._exposed):
            self.withdraw(number)

    def lend(self, reader: Reader, wanted: Sequence[Stretch], tenants: Collection[str]) -> "Loan":
        """The stretches themselves; a reader has one loan at a time. Raises Refusal for the first that is not."""
        with self._lock:
            found = [self._judged(place, each, tenants) for place, each in enumerate(wanted)]
            held = set(found)
            for exposed in held:
                exposed.readers.add(reader)
            views = [
                exposed.buffer[offset : offset + nbytes]
                for exposed, (_, _, nbytes, offset) in zip(found, wanted, strict=True)
            ]
        return Loan(self, reader, held, views)

    def give_back(self, reader: Reader, held: Iterable[_Exposed]) -> None:
        """Called by a loan."""
        with self._lock:
            for exposed in held:
                exposed.readers.discard(reader)
            if self._awaited:
                self._let_go.notify_all()

    def _judged(self, place: int, wanted: Stretch, tenants: Collection[str]) -> _Exposed:
        token, number, nbytes, offset = wanted
        exposed = self._exposed.get(number)
        if exposed is None or not hmac.compare_digest(exposed.region.token, token):
            raise Refusal(place, f"region {number} is not exposed under that token")
        if exposed.tenant not in tenants:
            raise Refusal(
                place, f"region {number} belongs to tenant {exposed.tenant!r}, which it may not read"
            )
        if offset < 0 or not 0 < nbytes <= exposed.region.nbytes - offset:
            raise Refusal(place, f"{nbytes} bytes at {offset} lie outside region {number}")
        return exposed


class Loan:
    """Views of exposed memory, which stays exposed until the block is left."""

    def __init__(
        self, regions: Regions, reader: Reader, held: Iterable[_Exposed], views: list[memoryview]
    ) -> None:
        self._regions = regions
        self._reader = reader
        self._held = held
        self._views = views

    def __enter__(self) -> list[memoryview]:
        return self._views

    def __exit__(self, *_: object) -> None:
        for view in self._views:
            view.release()
        self._regions.give_back(self._reader, self._held)
