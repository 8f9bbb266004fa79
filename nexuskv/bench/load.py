"""An engine under load, in a process of its own: it writes, reads and evicts while its daemon is killed time and again.

Owns what it does at random, and what it holds the daemon to. The bytes of a page follow from its key, so every page it
pins is checked, all of it. It has two kinds of pages. Those it shares with the other engines do not all fit, so they
come and go. Those of its own always fit, so each whose commit succeeded must be there until it evicts them itself.
It never makes a second client: whatever becomes of the daemon, the one it has must go on.
"""

import random
import time
from collections.abc import Iterable
from hashlib import blake2b

import msgspec
import numpy as np

import nexuskv
from nexuskv.bench import companion
from nexuskv.bench.floors import Page
from nexuskv.bench.setting import KIB, MODEL, PAGE_TOKENS, descriptor
from nexuskv.errors import ArenaFull, DeadlineExceeded, Disconnected, RemoteError

CHAIN = 8
OWN_CHAINS = 128
SHARED_CHAINS = 2048
SHARED_PAGE = 8 * KIB
HELD = 4
PATIENCE = 60.0
REST = 0.002
AWAY = (Disconnected, DeadlineExceeded, ArenaFull)
"""What an engine that outlives its daemon has to expect; anything else is a fault."""


class Orders(msgspec.Struct):
    """Where the daemon is; `engine` numbers the engines of a run from 0."""

    address: str
    seed: int
    engine: int


class Tally(msgspec.Struct):
    """Pages, and `own`: the chains of its own that must be there now; `refused` counts calls that found no daemon."""

    written: int = 0
    verified: int = 0
    lost: int = 0
    torn: int = 0
    refused: int = 0
    own: list[int] = []


def own_kind(engine: int) -> nexuskv.Descriptor:
    """Pages of one engine alone: another size, and so another arena, for each."""
    return descriptor(4 * KIB + 64 * engine)


def chain(cache: nexuskv.Cache, number: int) -> list[bytes]:
    """Keys of a chain; two numbers share none."""
    return cache.keys([number] * (CHAIN * PAGE_TOKENS))


def content(key: bytes, nbytes: int) -> Page:
    """What stands in a page of that key."""
    return np.resize(np.frombuffer(blake2b(key, digest_size=64).digest(), np.uint8), nbytes)


def torn(hit: nexuskv.Hit) -> int:
    """Pages of a hit in which a byte is not what the key says."""
    return sum(not np.array_equal(page.buffer, content(page.key, page.buffer.nbytes)) for page in hit)


def check(cache: nexuskv.Cache, keys: list[bytes], tally: Tally) -> None:
    """Holds the daemon to a chain that was committed: all there, and whole. Raises Disconnected.

    A hit may be short because a segment is not mapped while the daemon is away: lost is what the daemon itself denies.
    """
    states = ["present"]
    while set(states) == {"present"}:
        with cache.match(keys) as hit:
            if len(hit) == len(keys):
                tally.verified += len(hit)
                tally.torn += torn(hit)
                return
        states = [status.state for status in cache.status(keys)]
        time.sleep(REST)
    tally.lost += len(states) - states.count("present")


class Engine:
    """One client and what it has stored."""

    def __init__(self, client: nexuskv.Client, orders: Orders) -> None:
        self._client = client
        self._own = client.open(own_kind(orders.engine), model=MODEL)
        self._shared = client.open(descriptor(SHARED_PAGE), model=MODEL)
        self._random = random.Random(f"{orders.seed}/{orders.engine}")  # noqa: S311  # choices of a test
        self._next = 0
        self._full = False
        self._progress = time.monotonic()
        self._held: list[nexuskv.Hit] = []
        self.tally = Tally()

    def step(self) -> None:
        """Does one thing. Raises RemoteError when nothing could be stored for too long."""
        actions = (self._store_own, self._check_own, self._store_shared, self._read_shared, self._evict_some)
        (action,) = self._random.choices(actions, (4, 4, 6, 6, 0.1))
        try:
            action()
        except AWAY:
            self.tally.refused += 1
            time.sleep(REST)
        if time.monotonic() - self._progress > PATIENCE:
            raise RemoteError(f"in {PATIENCE:.0f} s no page of its own could be stored")

    def finish(self) -> Tally:
        """Lets go of what it holds."""
        while self._held:
            self._let_go()
        return self.tally

    def _store_own(self) -> None:
        """A new chain of its own, or the last one again whose commit nobody answered."""
        if self._full or len(self.tally.own) == OWN_CHAINS:
            self._start_anew()
        keys = chain(self._own, self._next)
        if self._store(self._own, keys):
            self.tally.own.append(self._next)
            self._next += 1
            self._progress = time.monotonic()

    def _start_anew(self) -> None:
        # Forgotten first: if the daemon dies meanwhile, nobody knows which are gone.
        self._full = True
        self.tally.own.clear()
        self._client.evict(self._own.descriptor.descriptor_id, everything=True)
        self._full = False

    def _check_own(self) -> None:
        if self.tally.own:
            check(self._own, chain(self._own, self._random.choice(self.tally.own)), self.tally)

    def _store_shared(self) -> None:
        self._store(self._shared, chain(self._shared, self._random.randrange(SHARED_CHAINS)))

    def _store(self, cache: nexuskv.Cache, keys: list[bytes]) -> bool:
        """Whether the whole chain is resident now; some of it may be being written by somebody else."""
        with cache.reserve(keys) as pages:
            fill(pages)
            if self._random.random() < 0.5:
                for page in pages:
                    page.commit()
        self.tally.written += len(pages)
        return not pages.busy

    def _read_shared(self) -> None:
        """Holds some hits for a while: what is pinned stays as it is, also when the daemon dies meanwhile."""
        hit = self._shared.match(chain(self._shared, self._random.randrange(SHARED_CHAINS)))
        self._held.append(hit)
        self._verify(hit)
        if len(self._held) > HELD:
            self._let_go()

    def _let_go(self) -> None:
        with self._held.pop(self._random.randrange(len(self._held))) as hit:
            self._verify(hit)

    def _verify(self, hit: nexuskv.Hit) -> None:
        self.tally.verified += len(hit)
        self.tally.torn += torn(hit)

    def _evict_some(self) -> None:
        self._client.evict(self._shared.descriptor.descriptor_id, 64 * SHARED_PAGE)


def fill(pages: Iterable[nexuskv.WritablePage]) -> None:
    """Writes what must stand there."""
    for page in pages:
        page.buffer[...] = content(page.key, page.buffer.nbytes)


def main() -> None:
    """Goes on until told to stop."""
    told = companion.orders(Orders)
    with nexuskv.connect(told.address) as client:
        engine = Engine(client, told)
        companion.under_way()
        while not companion.told_to_stop():
            engine.step()
        companion.reply(engine.finish())


if __name__ == "__main__":
    main()
