"""What a million entries cost: the daemon's own memory, and how much slower a lookup gets.

Owns the populations: chains as long as prompts have pages, of the smallest pages there are, since it is entries that
count here. Lookups go to another long chain each time, so the daemon's caches are as cold as they are in use.
"""

import random
from collections.abc import Iterator, Sequence

import nexuskv
from nexuskv.bench.figures import Readings
from nexuskv.bench.latency import MICROSECONDS
from nexuskv.bench.measure import Action, interleaved, placed, repeated
from nexuskv.bench.setting import MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell
from nexuskv.harness.residence import private_bytes

PAGE_BYTES = 64
SHORT_CHAIN = (16, 64)
LONG_CHAIN = 256
LONG_ONE_IN = 20


class Population:
    """Resident chains of a cache."""

    def __init__(self, client: nexuskv.Client, seed: int) -> None:
        self._cache = client.open(descriptor(PAGE_BYTES), model=MODEL)
        self._random = random.Random(seed)  # noqa: S311  # lengths of chains, not secrets
        self._short = 0
        self._long: list[list[bytes]] = []
        self.entries = 0

    def grow(self, entries: int) -> None:
        """Stores chains until there are `entries` pages."""
        while self.entries < entries:
            keys = random_keys(min(self._length(), entries - self.entries))
            with self._cache.reserve(keys):
                pass
            self.entries += len(keys)
            if len(keys) == LONG_CHAIN:
                self._long.append(keys)
            else:
                self._short += 1

    def lookups(self, times: int) -> Action:
        """Times lookups of a long chain each; choosing it is not timed."""

        def action() -> Sequence[float]:
            requests = iter([self._some_chain() for _ in range(times)])
            return repeated(lambda: self._cache.lookup(next(requests)), times)()

        return action

    def keys(self, count: int) -> list[bytes]:
        """Keys of resident pages, chosen anew."""
        return [bytes(bytearray(self._random.choice(self._random.choice(self._long)))) for _ in range(count)]

    def _length(self) -> int:
        due = len(self._long) * LONG_ONE_IN <= self._short
        return LONG_CHAIN if due else self._random.randint(*SHORT_CHAIN)

    def _some_chain(self) -> list[bytes]:
        # An engine has just made its keys: new objects are as near as those, the old ones lie anywhere in memory.
        return [bytes(bytearray(key)) for key in self._random.choice(self._long)]


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds entry_bytes and lookup_scale."""
    many, few = effort.pick(1_000_000, 20_000), effort.pick(10_000, 1_000)
    with (
        daemon_for(many, PAGE_BYTES) as large_daemon,
        daemon_for(few, PAGE_BYTES) as small_daemon,
        nexuskv.connect(large_daemon.socket, shared=False) as large_client,
        nexuskv.connect(small_daemon.socket, shared=False) as small_client,
    ):
        large, small = Population(large_client, 1), Population(small_client, 2)
        before = private_bytes(large_daemon.pid)
        for words in _grown(large, many):
            tell(words)
        readings.add("entry_bytes", None, (private_bytes(large_daemon.pid) - before) / many)
        small.grow(few)
        times, rounds = effort.pick(20, 3), effort.pick(40, 2)
        actions = {"value": large.lookups(times), "floor": small.lookups(times)}
        for words, placement in effort.turns():
            tell(f"lookups among {many:,} entries, {words}")
            with placed(placement, (large_daemon.pid, small_daemon.pid)):
                found = interleaved(rounds, actions)
            readings.add(
                "lookup_scale", placement, found["value"] * MICROSECONDS, found["floor"] * MICROSECONDS
            )


def _grown(population: Population, entries: int) -> Iterator[str]:
    for percent in range(0, 100, 10):
        yield f"storing {entries:,} entries, {percent} %"
        population.grow(entries * (percent + 10) // 100)
