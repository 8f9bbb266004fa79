"""What serving a peer costs a daemon: its CPU while another one pulls from it, by RDMA and by TCP.

Owns the daemons: one that serves both ways, and one that pulls each way. Knows nothing of bounds.
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
    port = _free_port()
    memory = ("--memory", str((mib + 2) * MIB), "--segment-bytes", str((mib + 2) * MIB))
    served = ("--listen", f"tcp://127.0.0.1:{port}", "--data", "rdma:", "--data", "tcp:")
    known = ("--peer", f"tcp://127.0.0.1:{port}")
    with (
        PrivateDaemon(new_instance(), *memory, *served) as source,
        PrivateDaemon(new_instance(), *memory, *known, "--data", "rdma://127.0.0.1:0") as by_rdma,
        PrivateDaemon(new_instance(), *memory, *known) as by_tcp,
        nexuskv.connect(source.socket) as client,
        nexuskv.connect(by_rdma.socket) as rdma,
        nexuskv.connect(by_tcp.socket) as tcp,
    ):
        _put(client, mib)
        for puller, path in ((rdma, "rdma"), (tcp, "tcp")):
            _warm(puller, mib, path)
        yield lambda: Cost(*(_cost(puller, mib, times, source.pid) for puller in (rdma, tcp)))


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
