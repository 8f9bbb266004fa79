"""How long an engine takes to find resident pages by itself, in the shared index, and LMDB beside it.

Owns what each of these operations consists of, for both. What LMDB returns is valid inside its transaction alone, so
its time is that of a whole one; what NexusKV returns is pinned, until it is let go, which is in the time too.
"""

import contextlib
import time
from collections.abc import Sequence
from functools import partial

import nexuskv
from nexuskv.bench import peers
from nexuskv.bench.figures import Readings
from nexuskv.bench.latency import MICROSECONDS, list_handles
from nexuskv.bench.measure import Action, interleaved, placed, repeated
from nexuskv.bench.setting import KIB, MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell

PAGES = 256
BATCH = 64
PAGE_BYTES = 64 * KIB


def hits(cache: nexuskv.Cache, wanted: Sequence[list[bytes]]) -> list[float]:
    """Seconds of a hit of one page, timed many together: to read a clock takes as long as a part of one."""
    start = time.perf_counter()
    for keys in wanted:
        with cache.match(keys):
            pass
    return [(time.perf_counter() - start) / len(wanted)]


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds hit_1, present_256 and pinned_64, and LMDB's figures for the same keys."""
    keys = random_keys(PAGES)
    with (
        daemon_for(PAGES, PAGE_BYTES) as daemon,
        nexuskv.connect(daemon.socket) as client,
        contextlib.ExitStack() as stack,
    ):
        times = effort.pick(50, 5)
        actions = _actions(client, keys, times)
        if peers.INSTALLED:
            tell("hits: LMDB stores its pages")
            gets = stack.enter_context(peers.lmdb_gets(keys, PAGE_BYTES))
            actions |= {
                "hit_1_lmdb": gets.singly,
                "present_256_lmdb": repeated(partial(gets.all_there, keys), times),
                "pinned_64_lmdb": repeated(partial(gets.pages, keys[:BATCH]), times),
            }
        else:
            readings.notes.append(peers.NO_LMDB)
        for words, placement in effort.turns():
            tell(f"hits, {words}")
            with placed(placement, (daemon.pid,)):
                found = interleaved(effort.pick(40, 2), actions)
            for name in ("hit_1", "present_256"):
                ours = found[name] * MICROSECONDS
                readings.add(name, placement, ours)
                if peers.INSTALLED:
                    readings.add(f"{name}_lmdb", placement, found[f"{name}_lmdb"] * MICROSECONDS, ours)
            for name in found.keys() & {"pinned_64", "pinned_64_lmdb"}:
                readings.add(name, placement, BATCH / found[name])


def _actions(client: nexuskv.Client, keys: list[bytes], times: int) -> dict[str, Action]:
    cache = client.open(descriptor(PAGE_BYTES), model=MODEL)
    with cache.reserve(keys):
        pass
    return {
        "hit_1": partial(hits, cache, [[key] for key in keys]),
        "present_256": repeated(partial(cache.lookup, keys), times),
        "pinned_64": repeated(partial(list_handles, cache, keys[:BATCH]), times),
    }
