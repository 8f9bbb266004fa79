"""What others do with the same pages: LMDB, the fastest store that two processes can share without a daemon.

Owns LMDB's set-up, the fastest one there is for it: on tmpfs, nothing synchronised, written through its memory map, a
database of its own for each way of writing. A page that LMDB returns is valid only inside its transaction, while a
NexusKV page stays pinned: the times are compared here, not the promises.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nexuskv.bench.floors import Page
from nexuskv.bench.measure import Action
from nexuskv.bench.setting import MIB, random_keys

INSTALLED = find_spec("lmdb") is not None
if TYPE_CHECKING or INSTALLED:
    import lmdb

NO_LMDB = "LMDB was not measured: it is not installed (pip install 'nexuskv[bench]')"
SETTLING_ROUNDS = 6
"""Until it takes no fresh memory any more: what a transaction frees, only later ones use again."""


@contextlib.contextmanager
def lmdb_puts(pages: Sequence[Page], batch: int) -> Iterator[Action]:
    """Yields what stores all pages under new keys, `batch` a transaction, and returns the seconds."""
    room = 4 * sum(page.nbytes for page in pages) + 64 * MIB
    with tempfile.TemporaryDirectory(prefix="nexuskv-bench-", dir="/dev/shm") as folder:
        environment = lmdb.open(
            folder, map_size=room, writemap=True, map_async=True, sync=False, metasync=False, lock=False
        )
        with environment:
            for _ in range(SETTLING_ROUNDS):
                _put(environment, pages, batch)
            yield lambda: [_put(environment, pages, batch)]


class LmdbGets:
    """Reads resident pages, each time in a read transaction of its own, as buffers into LMDB's memory map."""

    def __init__(self, environment: "lmdb.Environment", keys: Sequence[bytes]) -> None:
        self._environment = environment
        self._keys = keys

    def singly(self) -> list[float]:
        """Seconds of one page in its own transaction, of many in a row."""
        begin = self._environment.begin
        start = time.perf_counter()
        for key in self._keys:
            with begin(buffers=True) as transaction:
                transaction.get(key)
        return [(time.perf_counter() - start) / len(self._keys)]

    def all_there(self, keys: Sequence[bytes]) -> bool:
        """Whether all keys are there: by a cursor, which takes a third of the time of as many gets."""
        with self._environment.begin(buffers=True) as transaction, transaction.cursor() as cursor:
            return all(map(cursor.set_key, keys))

    def pages(self, keys: Sequence[bytes]) -> None:
        """Finds all pages."""
        with self._environment.begin(buffers=True) as transaction:
            _ = [transaction.get(key) for key in keys]


@contextlib.contextmanager
def lmdb_gets(keys: Sequence[bytes], page_bytes: int) -> Iterator[LmdbGets]:
    """Yields a reader of pages under `keys`. It has LMDB's lock table: without, a writer may reuse what it reads."""
    room = 4 * len(keys) * page_bytes + 64 * MIB
    with tempfile.TemporaryDirectory(prefix="nexuskv-bench-", dir="/dev/shm") as folder:
        with lmdb.open(folder, map_size=room) as environment, environment.begin(write=True) as transaction:
            for key in keys:
                transaction.put(key, bytes(page_bytes))
        with lmdb.open(folder, map_size=room, readonly=True) as environment:
            yield LmdbGets(environment, keys)


def _put(environment: "lmdb.Environment", pages: Sequence[Page], batch: int) -> float:
    """Seconds to store all pages. They are gone again when it returns."""
    keys = random_keys(len(pages))
    start = time.perf_counter()
    for at in range(0, len(keys), batch):
        with environment.begin(write=True) as transaction:
            for key, page in zip(keys[at : at + batch], pages[at : at + batch], strict=True):
                transaction.put(key, page.data)
    seconds = time.perf_counter() - start
    with environment.begin(write=True) as transaction:
        transaction.drop(environment.open_db(None, transaction), delete=False)
    return seconds
