"""How long a fork takes, from a long context and from a short one, and what memory thousands of them take.

Owns the two contexts. A fork asks the daemon, so both placements of the two processes are measured.
"""

import time

import nexuskv
from nexuskv.bench.entries import PAGE_BYTES
from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.latency import MICROSECONDS
from nexuskv.bench.measure import Action, interleaved, placed
from nexuskv.bench.setting import MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell

SHORT = 10
SLACK = 1024
"""Slots for the short context, and so that all make whole pages of memory."""
BRANCHES = 10_000

DEFINITIONS = (
    Definition(
        "fork", "us", "<=", 1.5, f"fork a branch of 100,000 pages; median, against one of {SHORT} pages"
    ),
    Definition("fork_bytes", "B", "<=", 0, f"page memory that {BRANCHES:,} forks of one branch take"),
)


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds fork and fork_bytes."""
    pages = effort.pick(100_000, 2_048)
    with daemon_for(pages + SLACK, PAGE_BYTES) as daemon, nexuskv.connect(daemon.socket) as client:
        tell(f"storing a context of {pages:,} pages")
        with _context(client, pages) as long, _context(client, SHORT) as short:
            times, rounds = effort.pick(100, 5), effort.pick(40, 2)
            actions = {"value": _forks(long, times), "floor": _forks(short, times)}
            for words, placement in effort.turns():
                tell(f"forks, {words}")
                with placed(placement, (daemon.pid,)):
                    found = interleaved(rounds, actions)
                readings.add("fork", placement, found["value"] * MICROSECONDS, found["floor"] * MICROSECONDS)
            readings.add("fork_bytes", None, _taken(client, long))


def _context(client: nexuskv.Client, pages: int) -> nexuskv.Branch:
    cache = client.open(descriptor(PAGE_BYTES), model=MODEL)
    keys = random_keys(pages)
    with cache.reserve(keys):
        pass
    return cache.branch(keys)


def _forks(branch: nexuskv.Branch, times: int) -> Action:
    """Times forks one by one; that their children are dropped is not timed."""

    def action() -> list[float]:
        samples: list[float] = []
        children: list[nexuskv.Branch] = []
        for _ in range(times):
            start = time.perf_counter()
            child = branch.fork()
            samples.append(time.perf_counter() - start)
            children.append(child)
        nexuskv.drop_all(children)
        return samples

    return action


def _taken(client: nexuskv.Client, branch: nexuskv.Branch) -> int:
    """Bytes of slots that are not free any more."""
    before = _free_bytes(client)
    children = branch.fork(BRANCHES)
    taken = before - _free_bytes(client)
    nexuskv.drop_all(children)
    return taken


def _free_bytes(client: nexuskv.Client) -> int:
    return sum(arena.free * arena.slot_bytes for arena in client.stats().arenas)
