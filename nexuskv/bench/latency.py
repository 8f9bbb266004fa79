"""How long an engine waits for the daemon: one page, 64 handles, 256 keys.

Owns what each of these operations consists of.
"""

from collections.abc import Callable
from functools import partial

import nexuskv
from nexuskv.bench.figures import Readings
from nexuskv.bench.floors import PingPong
from nexuskv.bench.measure import interleaved, placed, repeated
from nexuskv.bench.setting import KIB, MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell

PAGES = 256
PAGE_BYTES = 64 * KIB
MICROSECONDS = 1e6


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds socket_get, lookup_256, match_256 and handles_64."""
    with (
        daemon_for(PAGES, PAGE_BYTES) as daemon,
        PingPong() as ping_pong,
        nexuskv.connect(daemon.socket, shared=False) as client,
    ):
        operations: dict[str, Callable[[], object]] = {"floor": ping_pong.once, **_operations(client)}
        times, rounds = effort.pick(50, 5), effort.pick(20, 2)
        actions = {name: repeated(operation, times) for name, operation in operations.items()}
        for words, placement in effort.turns():
            tell(f"requests, {words}")
            with placed(placement, (daemon.pid, ping_pong.pid)):
                found = {
                    name: seconds * MICROSECONDS for name, seconds in interleaved(rounds, actions).items()
                }
            floor = found.pop("floor")
            for name, value in found.items():
                readings.add(name, placement, value, floor)


def _operations(client: nexuskv.Client) -> dict[str, Callable[[], object]]:
    cache = client.open(descriptor(PAGE_BYTES), model=MODEL)
    keys = random_keys(PAGES)
    with cache.reserve(keys):
        pass
    return {
        "socket_get": partial(get_page, cache, keys[:1]),
        "lookup_256": partial(cache.lookup, keys),
        "match_256": partial(match, cache, keys),
        "handles_64": partial(list_handles, cache, keys[:64]),
    }


def get_page(cache: nexuskv.Cache, keys: list[bytes]) -> None:
    """One page, from its key to an array of its bytes."""
    with cache.match(keys) as hit:
        _ = hit[0].buffer


def match(cache: nexuskv.Cache, keys: list[bytes]) -> None:
    """Pins pages and lets them go."""
    with cache.match(keys):
        pass


def list_handles(cache: nexuskv.Cache, keys: list[bytes]) -> None:
    """What an engine does that reads pages by other means than numpy."""
    with cache.match(keys) as hit:
        _ = hit.handles
