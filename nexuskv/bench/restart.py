"""How long a daemon with a million pages is away after it was killed, and whether its clients notice.

Owns what "serves again" means: a new client says hello, registers its descriptor, and is granted a page to write. The
time runs from the kill on, so the start of the process counts too.
"""

import contextlib
import time

import nexuskv
from nexuskv.bench import watcher
from nexuskv.bench.companion import Companion
from nexuskv.bench.entries import PAGE_BYTES, Population
from nexuskv.bench.figures import Readings
from nexuskv.bench.setting import MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell
from nexuskv.errors import StartupError
from nexuskv.harness.daemon import START_SECONDS, PrivateDaemon

WATCHED = 4096
SPARE = 64
"""Slots beyond the population, so that what is written to try a new daemon evicts nothing."""
RETRY_SECONDS = 0.005


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds restart_1m and restart_1m_failed, and a note of how many hits there were."""
    entries = effort.pick(1_000_000, 10_000)
    tell(f"storing {entries:,} entries")
    with daemon_for(entries + SPARE, PAGE_BYTES) as daemon:
        with nexuskv.connect(daemon.socket) as client:
            population = Population(client, 3)
            population.grow(entries)
        orders = watcher.Orders(daemon.socket, PAGE_BYTES, population.keys(WATCHED))
        with Companion("nexuskv.bench.watcher", orders) as watching:
            for run in range(1, effort.runs + 1):
                tell(f"restart {run} of {effort.runs}")
                readings.add("restart_1m", None, _restart(daemon, entries))
            watching.tell_to_stop()
            tally = watching.answer(watcher.Tally)
    if tally is None:
        raise StartupError(f"the client that hits during a restart failed: {watching.last_words}")
    readings.add("restart_1m_failed", None, tally.failed)
    readings.notes.append(
        f"restart_1m: another process hit {tally.hits:,} pages during {effort.runs} restarts; {tally.failed} failed."
    )


def _restart(daemon: PrivateDaemon, entries: int) -> float:
    """Seconds from the kill until the next daemon serves."""
    start = time.perf_counter()
    daemon.kill()
    daemon.start()
    while time.perf_counter() - start < START_SECONDS:
        with contextlib.suppress(nexuskv.Disconnected), nexuskv.connect(daemon.socket) as client:
            with client.open(descriptor(PAGE_BYTES), model=MODEL).reserve(random_keys(1)) as pages:
                seconds = time.perf_counter() - start
                pages.abort()
            kept = sum(arena.resident for arena in client.stats().arenas)
            if kept != entries:
                raise StartupError(f"of {entries:,} pages the new daemon has {kept:,}: {daemon.last_words()}")
            return seconds
        time.sleep(RETRY_SECONDS)
    raise StartupError(f"the daemon did not come back within {START_SECONDS:.0f} s: {daemon.last_words()}")
