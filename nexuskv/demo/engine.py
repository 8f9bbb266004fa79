"""The engine process of the demo: `python -m nexuskv.demo.engine`, orders on stdin, answers on stdout.

Owns what an inference engine does with the cache: match the prompt, use what is resident, compute and store
the rest. "Use" is reading every byte and comparing it, "compute" is writing bytes that follow from the
page's key. Knows nothing of traces, other engines, or when it will be killed.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter_ns
from typing import IO

import nexuskv
from nexuskv.client.cache import Cache
from nexuskv.client.hit import Hit
from nexuskv.contract import Descriptor, from_json
from nexuskv.demo.pattern import Pattern
from nexuskv.demo.trace import token_ids
from nexuskv.demo.wire import (
    Abandon,
    Answer,
    Failed,
    Hold,
    Holding,
    Order,
    Ready,
    Recall,
    Serve,
    Served,
    Start,
    orders,
    write_line,
)
from nexuskv.errors import NexusError, RemoteError
from nexuskv.harness.residence import Witness, private_bytes

MODEL = "meta-llama/Meta-Llama-3-8B@demo"


class Damaged(RemoteError):
    """A resident page whose bytes are not those that were committed under its key."""

    code = "damaged"


class Engine:
    """One engine attached to one daemon; what `Hold` and `Abandon` open stays open until the process dies."""

    def __init__(self, cache: Cache, descriptor: Descriptor, witness: Witness) -> None:
        self._cache = cache
        self._pattern = Pattern(descriptor)
        self._witness = witness
        self._open_for_good = ExitStack()

    def obey(self, order: Order) -> Answer:
        """Carries out one order. Raises Damaged, or what the client raises."""
        match order:
            case Start():
                return Ready(os.getpid(), private_bytes())
            case Serve(hash_ids):
                return self._serve(self._keys(hash_ids))
            case Recall(hash_ids):
                return self._recall(self._keys(hash_ids))
            case Hold(hash_ids):
                hit = self._open_for_good.enter_context(self._cache.match(self._keys(hash_ids)))
                return Holding(len(hit))
            case Abandon(hash_ids):
                return self._abandon(self._keys(hash_ids))

    def _keys(self, hash_ids: tuple[int, ...]) -> list[bytes]:
        return self._cache.keys(token_ids(hash_ids))

    def _serve(self, keys: list[bytes]) -> Served:
        began = perf_counter_ns()
        with self._cache.match(keys) as hit:
            match_ns = perf_counter_ns() - began
            outside = self._use(hit, keys)
            stored, reserve_ns, commit_ns = self._store(keys) if len(hit) < len(keys) else (0, 0, 0)
            return Served(len(hit), outside, stored, match_ns, reserve_ns, commit_ns, private_bytes())

    def _recall(self, keys: list[bytes]) -> Served:
        began = perf_counter_ns()
        with self._cache.match(keys) as hit:
            match_ns = perf_counter_ns() - began
            return Served(len(hit), self._use(hit, keys), 0, match_ns, 0, 0, private_bytes())

    def _use(self, hit: Hit, keys: Sequence[bytes]) -> int:
        """Compares every byte of a hit; returns how many of its pages do not lie in shared memory."""
        outside = 0
        for position in range(len(hit)):
            page, key = hit[position], keys[position]
            wrong = self._pattern.wrong_tensors(page.__getitem__, key)
            if wrong:
                raise Damaged(
                    f"page {position} ({key.hex()}) has other bytes than were stored: {', '.join(wrong)}"
                )
            outside += not self._witness.in_place(page.buffer)
        return outside

    def _store(self, keys: list[bytes]) -> tuple[int, int, int]:
        """Pages stored, and the nanoseconds that reserving and committing them took (not filling them)."""
        began = perf_counter_ns()
        with self._cache.reserve(keys) as pages:
            reserved = perf_counter_ns()
            for page in pages:
                self._pattern.fill(page.__getitem__, page.key)
            filled = perf_counter_ns()
        return len(pages), reserved - began, perf_counter_ns() - filled

    def _abandon(self, keys: list[bytes]) -> Holding:
        pages = self._open_for_good.enter_context(self._cache.reserve(keys))
        for page in pages:
            self._pattern.fill(page.__getitem__, page.key)
        return Holding(len(pages))


def run(stdin: IO[bytes], stdout: IO[bytes]) -> int:
    """Obeys orders until stdin closes; 1 after an answer `Failed`."""
    lines = orders(stdin)
    start = next(lines)
    if not isinstance(start, Start):
        raise TypeError(f"the first order must be Start, not {start}")
    try:
        with nexuskv.connect(start.socket) as client:
            descriptor = from_json(bytes(start.descriptor))
            engine = Engine(client.open(descriptor, model=MODEL), descriptor, Witness(client.instance))
            write_line(stdout, engine.obey(start))
            for order in lines:
                write_line(stdout, engine.obey(order))
    except NexusError as error:
        write_line(stdout, Failed(str(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.stdin.buffer, sys.stdout.buffer))
