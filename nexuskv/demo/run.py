"""The plot of the demo: A serves, B goes on with what A left, both are killed, C finds everything.

Owns the order of events and the promises that are checked at each step. Knows nothing of how figures are
shown, beyond calling `advance` once a request.

    requests  0 ........ n/3 .................... n
              engine A  |  engine B               |   kill -9 both: A holds pins, B is amid a write
              engine C: all of them again; it must reach every resident page, and none that was not committed
"""

import itertools
import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import nexuskv
from nexuskv.client.client import Client
from nexuskv.demo.ideal import PrefixTree, Survey
from nexuskv.demo.processes import DemoFailed, EngineProcess
from nexuskv.demo.report import Aftermath, Report
from nexuskv.demo.scale import SPARE_BLOCKS, Plan
from nexuskv.demo.tally import Tally
from nexuskv.demo.trace import TraceRequest
from nexuskv.demo.wire import Abandon, Hold, Holding, Recall, Serve, Served
from nexuskv.harness.daemon import PrivateDaemon
from nexuskv.protocol.messages import Stats
from nexuskv.protocol.stats import ArenaStats

ABANDONED = tuple(range(2**63 - SPARE_BLOCKS, 2**63))
"""A prompt that no trace holds: what B is writing when it dies."""

SETTLE_SECONDS = 10.0

Advance = Callable[[str, TraceRequest], None]


class Demo:
    """One run over one trace, in one private daemon."""

    def __init__(
        self, requests: Iterable[TraceRequest], survey: Survey, plan: Plan, advance: Advance
    ) -> None:
        self._requests, self._survey, self._plan, self._advance = requests, survey, plan, advance
        self._descriptor = plan.descriptor
        self._tree = PrefixTree()
        self._latest: tuple[int, ...] = ()

    def run(self) -> Report:
        """Runs it all and leaves nothing behind. Raises DemoFailed when a promise is broken."""
        began = time.monotonic()
        with PrivateDaemon(f"demo-{os.getpid()}", "--memory", str(self._plan.memory)) as daemon:
            first, second, held, abandoned = self._serve_and_kill(daemon.socket)
            with nexuskv.connect(daemon.socket) as client:
                stats = _settled(client)
                third = self._recall(daemon.socket, stats.arenas[0])
        return Report.of(
            self._survey,
            self._plan,
            (first, second, third),
            Aftermath.of(held, abandoned, stats),
            time.monotonic() - began,
        )

    def _serve_and_kill(self, socket: str) -> tuple[Tally, Tally, int, int]:
        requests = iter(self._requests)
        with ExitStack() as engines:
            a = engines.enter_context(EngineProcess("engine A", socket, self._descriptor))
            first = self._serve(a, itertools.islice(requests, max(1, self._survey.requests // 3)))
            b = engines.enter_context(EngineProcess("engine B", socket, self._descriptor))
            second = self._serve(b, requests)
            held = a.ask(Hold(self._latest), Holding).pages
            abandoned = b.ask(Abandon(ABANDONED), Holding).pages
        return first, second, held, abandoned

    def _serve(self, engine: EngineProcess, requests: Iterable[TraceRequest]) -> Tally:
        tally = self._tally(engine)
        for request in requests:
            ideal = self._tree.leading_known(request.hash_ids)
            served = engine.ask(Serve(request.hash_ids), Served)
            _require_in_place(request, served)
            tally.add(request, served, ideal)
            self._latest = request.hash_ids
            self._advance(engine.name, request)
        return tally

    def _recall(self, socket: str, arena: ArenaStats) -> Tally:
        reached = set[int]()
        with EngineProcess("engine C", socket, self._descriptor) as engine:
            tally = self._tally(engine)
            for number, request in enumerate(self._requests, 1):
                served = engine.ask(Recall(request.hash_ids), Served)
                _require_in_place(request, served)
                _require_all(request, number, served, arena)
                reached.update(self._tree.path(request.hash_ids)[: served.hit])
                tally.add(request, served, len(request.hash_ids))
                self._advance(engine.name, request)
            unwritten = engine.ask(Recall(ABANDONED), Served).hit
        _require_exactly(arena, len(reached), unwritten)
        return tally

    def _tally(self, engine: EngineProcess) -> Tally:
        return Tally(self._descriptor.page_bytes, engine.ready.private_bytes)


def _settled(client: Client) -> Stats:
    """The figures once the daemon has noticed that A and B are dead: nothing pinned, nothing being written."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        stats = client.stats()
        (arena,), (tenant,) = stats.arenas, stats.tenants
        if not tenant.pinned and not arena.writing:
            return stats
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"{tenant.pinned} pages are still pinned and {arena.writing} written by killed engines"
            )
        time.sleep(0.02)


def _require_in_place(request: TraceRequest, served: Served) -> None:
    if served.outside:
        raise DemoFailed(
            f"{served.outside} of {served.hit} pages hit at {request.timestamp} ms are not in shared memory"
        )


def _require_all(request: TraceRequest, number: int, served: Served, arena: ArenaStats) -> None:
    if not arena.evicted and served.hit < len(request.hash_ids):
        raise DemoFailed(
            f"engine C found {served.hit} of {len(request.hash_ids)} blocks of request {number},"
            " though nothing was evicted"
        )


def _require_exactly(arena: ArenaStats, reached: int, unwritten: int) -> None:
    if reached != arena.resident:
        raise DemoFailed(f"engine C reached {reached} pages, but {arena.resident} are resident")
    if unwritten:
        raise DemoFailed(f"engine C was given {unwritten} pages that a killed engine had not committed")
