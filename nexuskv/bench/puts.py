"""How fast pages get into the cache, against plain copies of the same pages into the same slots.

Owns what a round is: as many pages as fill the daemon's memory, far more than the CPU's caches hold, from an engine's
memory of the same size. All pages go again after each round, so that every round has the same slots.
"""

import contextlib
import time
from collections.abc import Callable, Sequence

import numpy as np

import nexuskv
from nexuskv.bench import peers
from nexuskv.bench.figures import Readings
from nexuskv.bench.floors import Page, copy_seconds
from nexuskv.bench.measure import Action, interleaved, placed
from nexuskv.bench.setting import KIB, MIB, MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell

BATCH = 64
ROUND_BYTES = 256 * MIB

Fill = Callable[[nexuskv.Reservation, Sequence[Page]], None]


class Puts:
    """Rounds over one cache that `pages` fill; each action returns one time, that of the whole round."""

    def __init__(self, client: nexuskv.Client, pages: Sequence[Page]) -> None:
        self._client = client
        self._cache = client.open(descriptor(pages[0].nbytes), model=MODEL)
        self._pages = pages

    def floor(self) -> list[float]:
        """Plain copies into slots that are reserved before and given back after."""
        with self._cache.reserve(random_keys(len(self._pages))) as reservation:
            seconds = copy_seconds([page.buffer for page in reservation], self._pages)
            reservation.abort()
        return [seconds]

    def through(self, fill: Fill) -> Action:
        """All pages, in batches: each is asked for before the one ahead of it is filled and committed by `fill`."""

        def action() -> list[float]:
            batches = _batches(self._pages)
            keys = [random_keys(len(batch)) for batch in batches]
            start = time.perf_counter()
            ahead = self._cache.reserve(keys[0], wait=False)
            for batch, following in zip(batches, [*keys[1:], []], strict=True):
                current, ahead = ahead, self._cache.reserve(following, wait=False)
                with current:
                    fill(current, batch)
            self._client.stats()  # its answer comes after all commits
            seconds = time.perf_counter() - start
            self._client.evict()
            return [seconds]

        return action


def together(reservation: nexuskv.Reservation, pages: Sequence[Page]) -> None:
    """Fills all pages and commits them together; the next batch begins while the commit is on its way."""
    reservation.fill(pages)
    reservation.commit(wait=False)


def one_by_one(reservation: nexuskv.Reservation, pages: Sequence[Page]) -> None:
    """Fills and commits one by one: a reader can have each as soon as it is there."""
    for target, source in zip(reservation, pages, strict=True):
        target.fill(source)
        target.commit()
    reservation.commit(wait=False)


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds put_64k_single, put_64k_batch and put_1mib, and LMDB's figures for the same pages."""
    _measure_pages(
        64 * KIB, {"put_64k_single": one_by_one, "put_64k_batch": together}, effort, readings, tell
    )
    _measure_pages(MIB, {"put_1mib": together}, effort, readings, tell)
    if not peers.INSTALLED:
        readings.notes.append(peers.NO_LMDB)


def _measure_pages(
    page_bytes: int, ways: dict[str, Fill], effort: Effort, readings: Readings, tell: Tell
) -> None:
    count = effort.pick(ROUND_BYTES // page_bytes, BATCH)
    pages = list(np.random.default_rng(0).integers(256, size=(count, page_bytes), dtype=np.uint8))
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(daemon_for(count, page_bytes))
        puts = Puts(stack.enter_context(nexuskv.connect(daemon.socket)), pages)
        actions = {"floor": puts.floor} | {name: puts.through(put) for name, put in ways.items()}
        if peers.INSTALLED:
            for name, put in ways.items():
                tell(f"puts of {page_bytes // KIB} KiB: LMDB settles")
                rival = peers.lmdb_puts(pages, 1 if put is one_by_one else BATCH)
                actions[f"{name}_lmdb"] = stack.enter_context(rival)
        for words, placement in effort.turns():
            tell(f"puts of {page_bytes // KIB} KiB, {words}")
            with placed(placement, (daemon.pid,)):
                found = interleaved(effort.pick(4, 1), actions)
            speeds = {name: count * page_bytes / seconds / 1e9 for name, seconds in found.items()}
            floor = speeds.pop("floor")
            for name, speed in speeds.items():
                readings.add(name, placement, speed, floor)


def _batches(pages: Sequence[Page]) -> list[Sequence[Page]]:
    return [pages[at : at + BATCH] for at in range(0, len(pages), BATCH)]
