"""How much slower a hit gets in a large index: another page each time, so the CPU's caches are as cold as in use.

Owns the two indexes, and the idle clients beside the one that is measured.
"""

import contextlib
from collections.abc import Iterator

import nexuskv
from nexuskv.bench.entries import PAGE_BYTES, Population
from nexuskv.bench.figures import Readings
from nexuskv.bench.latency import MICROSECONDS
from nexuskv.bench.measure import Action, interleaved, placed
from nexuskv.bench.resident import hits
from nexuskv.bench.setting import MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell

CLIENTS = {"hit_scale": 1, "hit_scale_8": 8}


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds hit_scale and hit_scale_8."""
    many, few = effort.pick(1_000_000, 20_000), effort.pick(10_000, 1_000)
    with (
        daemon_for(many, PAGE_BYTES) as large_daemon,
        daemon_for(few, PAGE_BYTES) as small_daemon,
        nexuskv.connect(large_daemon.socket) as large_client,
        nexuskv.connect(small_daemon.socket) as small_client,
    ):
        times, rounds = effort.pick(1000, 50), effort.pick(40, 2)
        tell(f"storing {many:,} entries")
        actions = {
            "value": _some_hits(large_client, many, times),
            "floor": _some_hits(small_client, few, times),
        }
        for name, clients in CLIENTS.items():
            with _idle(large_daemon.socket, clients - 1), _idle(small_daemon.socket, clients - 1):
                for words, placement in effort.turns():
                    tell(f"hits among {many:,} entries, {clients} attached, {words}")
                    with placed(placement, (large_daemon.pid, small_daemon.pid)):
                        found = interleaved(rounds, actions)
                    readings.add(
                        name, placement, found["value"] * MICROSECONDS, found["floor"] * MICROSECONDS
                    )


def _some_hits(client: nexuskv.Client, entries: int, times: int) -> Action:
    """Times hits of pages that are chosen anew each time, which is not timed."""
    population = Population(client, entries)
    population.grow(entries)
    cache = client.open(descriptor(PAGE_BYTES), model=MODEL)
    return lambda: hits(cache, [[key] for key in population.keys(times)])


@contextlib.contextmanager
def _idle(address: str, clients: int) -> Iterator[None]:
    """Clients that are attached and do nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(clients):
            client = stack.enter_context(nexuskv.connect(address))
            client.open(descriptor(PAGE_BYTES), model=MODEL).match(random_keys(1)).close()
        yield
