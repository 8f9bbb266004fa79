"""What a pull from another host costs those who read what is here: the slowest of many hits, with and without.

Owns the two daemons, and what is pulled between them. While a window of hits is timed, one daemon sends and the other
receives as fast as they can; a window lasts as long as its pull does. Windows with and without take turns.

Three processes are busy then. *Apart* has the engine on one CPU and both daemons on the others: that is what an engine
meets that has cores of its own, and the daemons share caches and memory with it but no CPU. *Pinned* has all three on
one CPU, most of whose time belongs to the pull; yet a hit is far shorter than a turn, so that few are interrupted.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import nexuskv
from nexuskv.bench.figures import Readings
from nexuskv.bench.latency import MICROSECONDS
from nexuskv.bench.measure import placed
from nexuskv.bench.setting import KIB, MIB, MODEL, descriptor, new_instance, random_keys
from nexuskv.bench.suite import Effort, Tell
from nexuskv.errors import RemoteError
from nexuskv.harness.daemon import PrivateDaemon

PULLED, LOCAL = MIB, 64 * KIB
"""Bytes of a page."""
HITS = 1000
"""Between two looks whether the pull has ended."""
WAIT_SECONDS = 60.0
SHARES = {"local_under_pull": 0.99, "local_under_pull_p999": 0.999}


class Stage:
    """A daemon with pages that an engine hits, and another one that it pulls pages from."""

    def __init__(self, here: nexuskv.Client, there: nexuskv.Client, pages: int) -> None:
        self.rates: list[float] = []
        """Bytes a second of each pull."""
        self._client = here
        self._local = here.open(descriptor(LOCAL), model=MODEL)
        self._keys = random_keys(256)
        self._pulled = here.open(descriptor(PULLED), model=MODEL)
        self._chain = random_keys(pages)
        self._window = 20 * HITS
        with self._local.reserve(self._keys):
            pass
        with there.open(descriptor(PULLED), model=MODEL).reserve(self._chain):
            pass

    def quiet(self) -> list[float]:
        """Seconds of each hit of a window in which nothing else goes on, as long as the last one with a pull."""
        return self._hits(self._window)

    def pulling(self) -> list[float]:
        """Seconds of each hit of a window in which pages come as fast as they can."""
        self._client.evict(self._pulled.descriptor.descriptor_id)
        begin = time.perf_counter()
        self._pulled.prefetch(self._chain)
        _wait(lambda: self._pulled.lookup(self._chain) > 0, "no page came from the other daemon")
        samples: list[float] = []
        while self._pulled.lookup(self._chain) < len(self._chain):
            samples += self._hits(HITS)
        self.rates.append(len(self._chain) * PULLED / (time.perf_counter() - begin))
        self._window = max(HITS, len(samples))
        return samples or self._hits(HITS)

    def _hits(self, count: int) -> list[float]:
        """The clock that is read with each hit is part of it, in both kinds of window."""
        match, clock, samples = self._local.match, time.perf_counter, list[float]()
        wanted = [[key] for key in self._keys]
        for at in range(count):
            keys = wanted[at % len(wanted)]
            start = clock()
            with match(keys):
                pass
            samples.append(clock() - start)
        return samples


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds local_under_pull and local_under_pull_p999."""
    pages = effort.pick(256, 16)
    with (
        _daemons(pages * PULLED) as (there, here),
        nexuskv.connect(there.socket) as theirs,
        nexuskv.connect(here.socket) as ours,
    ):
        stage = Stage(ours, theirs, pages)
        for words, placement in effort.turns():
            tell(f"hits under a pull, {words}")
            with placed(placement, (there.pid, here.pid)):
                windows = _windows(stage, effort.pick(5, 1))
            for name, share in SHARES.items():
                value, floor = (median(_slowest(each, share) for each in found) for found in windows)
                readings.add(name, placement, value * MICROSECONDS, floor * MICROSECONDS)
        readings.notes.append(
            f"local_under_pull: the pulls brought {median(stage.rates) / 1e9:.2f} GB/s, which is what both daemons"
            " together can do there."
        )


def _windows(stage: Stage, rounds: int) -> tuple[list[list[float]], list[list[float]]]:
    """Windows with a pull and without, in turn; the first round warms up."""
    pulling, quiet = list[list[float]](), list[list[float]]()
    for _ in range(rounds + 1):
        pulling.append(stage.pulling())
        quiet.append(stage.quiet())
    return pulling[1:], quiet[1:]


@contextmanager
def _daemons(nbytes: int) -> Iterator[tuple[PrivateDaemon, PrivateDaemon]]:
    """One that serves, and one that is connected to it; each has room for `nbytes` and some more."""
    address = f"tcp://127.0.0.1:{_free_port()}"
    memory = ("--memory", str(nbytes + 192 * MIB), "--data", "tcp://127.0.0.1:0")
    with (
        PrivateDaemon(new_instance(), *memory, "--listen", address) as there,
        PrivateDaemon(new_instance(), *memory, "--listen", "tcp://127.0.0.1:0", "--peer", address) as here,
    ):
        with nexuskv.connect(here.socket) as client:
            _wait(
                lambda: any(each.state == "connected" for each in client.peers().peers),
                "the daemons do not meet",
            )
        yield there, here


def _wait(there: Callable[[], bool], fault: str) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not there():
        if time.monotonic() > until:
            raise RemoteError(f"{fault}: see whether TCP over loopback works here")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def _slowest(samples: list[float], share: float) -> float:
    """The sample that `share` of all are below."""
    return sorted(samples)[int(len(samples) * share)]
