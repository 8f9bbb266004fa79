"""How fast pages come from another process, and how soon a single one.

Owns what is asked for and how much of it at a time. The only module of nexuskv that imports a transport.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from nexuskv.bench.figures import Readings
from nexuskv.bench.floors import PingPong, tcp_pair
from nexuskv.bench.iperf import Iperf
from nexuskv.bench.measure import Action, interleaved, placed, repeated
from nexuskv.bench.setting import KIB, MIB
from nexuskv.bench.suite import Effort, Tell
from nexuskv.errors import RemoteError
from nexuskv_transport.base import Connection, Outcome, Pull
from nexuskv_transport.checks import REGION_BYTES, SERVED, Pair, processes

PAGE = 64 * KIB
ARENA_BYTES = 128 * MIB
CALLS = 4
"""Calls outstanding at a time: while one is received, the next is on its way."""
SECONDS = 60.0
MICROSECONDS = 1e6
BATCHES = {"tcp_1mib": (MIB, 16), "tcp_64k": (PAGE, 64)}
"""Size of a page, and pages of a call."""


class Puller:
    """Pulls pages of one size, round and round an arena."""

    def __init__(self, pair: Pair, memory: memoryview, nbytes: int) -> None:
        self._connection = pair.connect()
        region, places = pair.region(SERVED), range(0, ARENA_BYTES, nbytes)
        self._free = deque(
            Pull(place // nbytes, region, place % REGION_BYTES, memory[place : place + nbytes])
            for place in places
        )
        self._pulls = list(self._free)  # by their ids
        self._nbytes = nbytes

    def one(self) -> None:
        """A single page, and nothing else outstanding."""
        self._connection.pull(self._pulls[:1], time.monotonic() + SECONDS)
        _ended(self._connection)

    def many(self, batch: int, count: int) -> list[float]:
        """Seconds a GB, of `count` pages that are asked for by `batch`."""
        asked, outstanding = 0, 0
        start = time.perf_counter()
        while asked < count or outstanding:
            while asked < count and outstanding <= (CALLS - 1) * batch:
                pulls = [self._free.popleft() for _ in range(batch)]
                outstanding += self._connection.pull(pulls, time.monotonic() + SECONDS)
                asked += batch
            done = _ended(self._connection)
            self._free.extend([self._pulls[id_] for id_ in done])
            outstanding -= len(done)
        return [(time.perf_counter() - start) / (count * self._nbytes) * 1e9]


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds tcp_1mib, tcp_64k, tcp_page_latency and tcp_page_latency_whole."""
    with processes("tcp://127.0.0.1:0") as pair:
        memory = pair.memory(ARENA_BYTES)
        memory[:] = bytes(ARENA_BYTES)  # so that no first touch is measured
        _rates(pair, memory, effort, readings, tell)
        _latency(pair, memory, effort, readings, tell)


def _rates(pair: Pair, memory: memoryview, effort: Effort, readings: Readings, tell: Tell) -> None:
    if not Iperf.here():
        readings.notes.append(
            "tcp_1mib and tcp_64k were not measured: install the package iperf3, their floor."
        )
        return
    total = effort.pick(1024 * MIB, 32 * MIB)
    with Iperf() as iperf:
        actions: dict[str, Action] = {"floor": partial(iperf.seconds_a_gb, total)}
        for name, (nbytes, batch) in BATCHES.items():
            actions[name] = partial(Puller(pair, memory, nbytes).many, batch, total // nbytes)
        for words, placement in effort.turns():
            tell(f"rates, {words}")
            with placed(placement, (pair.far_pid, iperf.pid)):
                found = interleaved(effort.pick(3, 1), actions)
            for name in BATCHES:
                readings.add(name, placement, 1 / found[name], 1 / found["floor"])


def _latency(pair: Pair, memory: memoryview, effort: Effort, readings: Readings, tell: Tell) -> None:
    with _ping_pongs() as (small, whole):
        operations: dict[str, Callable[[], object]] = {
            "small": small.once,
            "whole": whole.once,
            "page": Puller(pair, memory, PAGE).one,
        }
        times, rounds = effort.pick(100, 5), effort.pick(20, 2)
        actions = {name: repeated(operation, times) for name, operation in operations.items()}
        for words, placement in effort.turns():
            tell(f"latency, {words}")
            with placed(placement, (pair.far_pid, small.pid, whole.pid)):
                found = interleaved(rounds, actions)
            page, *floors = (found[name] * MICROSECONDS for name in ("page", "small", "whole"))
            readings.add("tcp_page_latency", placement, page, floors[0])
            readings.add("tcp_page_latency_whole", placement, page, floors[1])


@contextmanager
def _ping_pongs() -> Iterator[tuple[PingPong, PingPong]]:
    with PingPong(tcp_pair) as small, PingPong(tcp_pair, answer_bytes=PAGE) as whole:
        yield small, whole


def _ended(connection: Connection) -> list[int]:
    """Waits for the end of pulls, at least one, and returns their ids. Raises RemoteError for what is no page."""
    while not (done := connection.completed()):
        select.select([connection.fileno()], [], [])
    if any(each.outcome is not Outcome.OK for each in done):
        raise RemoteError(f"pages did not come: {connection.ended}")
    return [each.id for each in done]
