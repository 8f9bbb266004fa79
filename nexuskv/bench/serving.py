"""What serving a peer costs a daemon: its CPU while another one pulls from it, by RDMA and by TCP.

Owns the daemons: for each way one that serves, and one that pulls from it alone. Knows nothing of bounds.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import nexuskv
from nexuskv.bench.setting import MIB, MODEL, PAGE_TOKENS, descriptor, new_instance
from nexuskv.errors import StartupError
from nexuskv.harness.daemon import PrivateDaemon

SECONDS = 60.0
GIB = 1024 * MIB
PUT_AT_ONCE = 16


class Cost(NamedTuple):
    """Milliseconds on a CPU for a GiB of pages."""

    rdma: float
    tcp: float


@contextlib.contextmanager
def serving_daemon(mib: int, times: int) -> Iterator[Callable[[], Cost]]:
    """Yields what measures once, by pulling so many pages of 1 MiB so many times each way. Raises StartupError."""
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(_pair(mib, way)) for way in ("rdma", "tcp")]
        yield lambda: Cost(*(_cost(puller, mib, times, pid) for puller, pid in pairs))


@contextlib.contextmanager
def _pair(mib: int, way: str) -> Iterator[tuple[nexuskv.Client, int]]:
    """A client of one that pulls, and the pid of the daemon that serves it: by that way alone."""
    port = _free_port()
    memory = ("--memory", str((mib + 2) * MIB), "--segment-bytes", str((mib + 2) * MIB))
    served = ("--listen", f"tcp://127.0.0.1:{port}", "--data", "rdma:", "--data", "tcp:")
    pulls = (
        "--peer",
        f"tcp://127.0.0.1:{port}",
        *(("--data", "rdma://127.0.0.1:0") if way == "rdma" else ()),
    )
    with (
        PrivateDaemon(new_instance(), *memory, *served) as source,
        PrivateDaemon(new_instance(), *memory, *pulls) as taker,
        nexuskv.connect(source.socket) as client,
        nexuskv.connect(taker.socket) as puller,
    ):
        _put(client, mib)
        _warm(puller, mib, way)
        yield puller, source.pid


def _opened(client: nexuskv.Client, mib: int) -> tuple[nexuskv.Cache, list[bytes]]:
    cache = client.open(descriptor(MIB), model=MODEL)
    return cache, cache.keys(range(mib * PAGE_TOKENS))


def _put(client: nexuskv.Client, mib: int) -> None:
    cache, keys = _opened(client, mib)
    for at in range(0, mib, PUT_AT_ONCE):
        with cache.reserve(keys[: at + PUT_AT_ONCE]) as pages:
            for page in pages:
                page.buffer[...] = page.position % 251


def _warm(puller: nexuskv.Client, mib: int, path: str) -> None:
    """Until pages come by that path, and the source knows their checksums."""
    until = time.monotonic() + SECONDS
    while not any(peer.path == path for peer in puller.peers().peers) or not _pull(puller, mib):
        if time.monotonic() > until:
            said = "; ".join(str(each) for each in puller.peers().peers)
            raise StartupError(f"pages do not come by {path}: {said}")
        _pull(puller, mib)


def _cost(puller: nexuskv.Client, mib: int, times: int, pid: int) -> float:
    before = _on_cpu_ns(pid)
    for _ in range(times):
        if not _pull(puller, mib):
            raise StartupError("pages did not come while they were measured")
    return (_on_cpu_ns(pid) - before) / 1e6 * GIB / (times * mib * MIB)


def _pull(puller: nexuskv.Client, mib: int) -> bool:
    """Whether all pages came, which are all absent before."""
    puller.evict()
    cache, keys = _opened(puller, mib)
    return cache.fetch(keys, within=SECONDS).pages == mib


def _on_cpu_ns(pid: int) -> int:
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def _free_port() -> int:
    """One that nobody listens on; those behind it are as likely to be free."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
