"""What others do with the same pages: LMDB, the fastest store that two processes can share without a daemon.

Owns LMDB's set-up, the fastest one there is for it: on tmpfs, nothing synchronised, written through its memory map. A
page that LMDB returns is valid only inside its transaction, while a NexusKV page stays pinned: the puts are compared
here, not the promises.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nexuskv.bench.floors import Page

INSTALLED = find_spec("lmdb") is not None
if TYPE_CHECKING or INSTALLED:
    import lmdb

NO_LMDB = "LMDB was not measured: it is not installed (pip install 'nexuskv[bench]')"


class Lmdb:
    """A database in shared memory."""

    def __init__(self, environment: "lmdb.Environment") -> None:
        self._environment = environment

    def put(self, keys: Sequence[bytes], pages: Sequence[Page], batch: int) -> float:
        """Seconds to store all pages, `batch` a transaction. They are gone again when it returns."""
        start = time.perf_counter()
        for at in range(0, len(keys), batch):
            with self._environment.begin(write=True) as transaction:
                for key, page in zip(keys[at : at + batch], pages[at : at + batch], strict=True):
                    transaction.put(key, page.data)
        seconds = time.perf_counter() - start
        with self._environment.begin(write=True) as transaction:
            transaction.drop(self._environment.open_db(None, transaction), delete=False)
        return seconds


@contextlib.contextmanager
def opened(nbytes: int) -> Iterator[Lmdb | None]:
    """An empty database for pages of `nbytes` in all; None where LMDB is not installed."""
    if not INSTALLED:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="nexuskv-bench-", dir="/dev/shm") as folder:
        # Pages that a transaction freed are used again by a later one only, hence room for several rounds.
        environment = lmdb.open(
            folder,
            map_size=4 * nbytes + (64 << 20),
            writemap=True,
            map_async=True,
            sync=False,
            metasync=False,
            lock=False,
        )
        with environment:
            yield Lmdb(environment)
