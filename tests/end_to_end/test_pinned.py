"""A pool is locked in memory once, told so, and let go with its client; the kernel is the witness."""

import importlib.util
import resource
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest

import nexuskv
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import intact, keys, put, small
from tests.support.users import as_nobody, become_nobody

SEGMENT = 1 << 20
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "1MiB", "--socket-mode", "0666", memory="16MiB") as daemon:
        daemon.socket.parent.chmod(0o755)
        yield daemon


def locked() -> int:
    """Bytes that this process has locked, as the kernel counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmLck:"))


def read(cache: nexuskv.Cache, pages: int) -> None:
    """Maps the segments that these pages lie in, by reading them."""
    with cache.match(keys(cache, pages)) as hit:
        assert len(hit) == pages
        assert intact(hit)


def test_a_pool_is_locked_once_and_let_go_with_its_client(daemon: Daemon) -> None:
    before = locked()
    with daemon.client() as client:
        cache = client.open(small(kib=64), model="m")
        assert cache.pin_pool().segments == 0  # nothing is mapped yet
        put(cache, keys(cache, 16))
        read(cache, 16)
        first = cache.pin_pool()
        assert (first.device, first.how, first.reason) == ("cpu", "mlock", "page-locked, as asked")
        assert first.segments == first.new_segments > 0
        assert first.nbytes == first.new_nbytes == locked() - before
        again = client.open(small(kib=64), model="other").pin_pool()
        assert (again.segments, again.nbytes) == (first.segments, first.nbytes)
        assert (again.new_segments, again.new_nbytes) == (0, 0)
        assert locked() - before == first.nbytes
        read(cache, 16)
    assert locked() == before


def test_what_the_arena_grew_by_is_added(daemon: Daemon) -> None:
    before = locked()
    with daemon.client() as client:
        cache = client.open(small(kib=64), model="m")
        put(cache, keys(cache, 1))
        read(cache, 1)
        first = cache.pin_pool()
        put(cache, keys(cache, 40))
        read(cache, 40)
        more = cache.pin_pool()
        assert more.new_segments == more.segments - first.segments > 0
        assert locked() - before == more.nbytes
    assert locked() == before


def test_a_hit_that_outlives_its_client_keeps_no_lock(daemon: Daemon) -> None:
    before = locked()
    client = daemon.client()
    cache = client.open(small(), model="m")
    put(cache, keys(cache, 2))
    hit = cache.match(keys(cache, 2))
    kept = hit[0].buffer  # a view keeps the mapping, not the lock
    cache.pin_pool()
    client.close()
    hit.close()
    assert locked() == before
    assert kept.nbytes == cache.descriptor.page_bytes


def test_a_pinned_pool_is_the_path_that_is_explained(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(small(), model="m")
        cache.gain.observe(1000, 10.0)
        put(cache, keys(cache, 2))
        assert cache.explain(keys(cache, 2)).path == "shared_memory"
        read(cache, 2)
        cache.pin_pool()
        assert cache.explain(keys(cache, 2)).path == "pinned_memory"


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed: what happens without it cannot be seen")
def test_without_torch_it_is_page_locked_and_said(daemon: Daemon) -> None:
    before = locked()
    with daemon.client() as client:
        cache = client.open(small(), model="m")
        put(cache, keys(cache, 1))
        read(cache, 1)
        pinned = cache.pin_pool("cuda")
        assert (pinned.device, pinned.how) == ("cuda", "mlock")
        assert "torch is not installed" in pinned.reason
        assert locked() - before == pinned.nbytes > 0


def test_cuda_registers_the_pool(daemon: Daemon) -> None:
    torch = pytest.importorskip("torch", reason="needs torch with a CUDA device")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    with daemon.client() as client:
        cache = client.open(small(), model="m")
        put(cache, keys(cache, 1))
        read(cache, 1)
        assert cache.pin_pool("cuda").how == "cudaHostRegister"
        assert cache.pin_pool("cuda").new_segments == 0


class Cudart:
    """In torch's place: takes what it is told as CUDA does, and refuses once more than `limit` bytes are registered."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.registered: dict[int, int] = {}

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:  # noqa: N802  # CUDA's name
        assert flags == 0x09  # portable, read-only
        assert address not in self.registered
        if sum(self.registered.values()) + nbytes > self.limit:
            return 2
        self.registered[address] = nbytes
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802  # CUDA's name
        del self.registered[address]
        return 0


@pytest.fixture
def cudart(monkeypatch: pytest.MonkeyPatch) -> Cudart:
    cudart = Cudart(4 * SEGMENT)
    cuda = SimpleNamespace(is_available=lambda: True, cudart=lambda: cudart)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return cudart


def test_what_cuda_is_told(daemon: Daemon, cudart: Cudart) -> None:
    before = locked()
    with daemon.client() as client:
        cache = client.open(small(kib=64), model="m")
        put(cache, keys(cache, 1))
        cache.pin_pool("cpu")
        pinned = cache.pin_pool("cuda")
        assert (pinned.how, pinned.new_segments) == ("cudaHostRegister", 1)
        assert cache.pin_pool("cuda").new_segments == 0
        assert list(cudart.registered.values()) == [pinned.nbytes]
        assert locked() == before  # one way of pinning at a time
        put(cache, keys(cache, 80))
        with pytest.raises(nexuskv.PinningRefused, match=r"CUDA refused to register 1 MiB \(error 2\)"):
            cache.pin_pool("cuda")
        assert list(cudart.registered.values()) == [pinned.nbytes]
    assert cudart.registered == {}


def test_an_unknown_device_is_refused(daemon: Daemon) -> None:
    with (
        daemon.client() as client,
        pytest.raises(nexuskv.BadRequest, match="'tpu' is no device to pin for: use one of cpu, cuda"),
    ):
        client.open(small(), model="m").pin_pool("tpu")


def test_a_forked_child_leaves_its_parents_locks_alone(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(small(), model="m")
        put(cache, keys(cache, 1))
        read(cache, 1)
        cache.pin_pool()
        before = locked()
        with processes.running(leave, context=processes.FORK) as child:
            assert child.receive() == 0
            assert child.join() == 0
        assert locked() == before > 0


def leave(pipe: Connection) -> None:
    """A child that has no locks of its own."""
    pipe.send(locked())


@as_nobody
def test_too_small_a_limit_says_which_to_raise(daemon: Daemon) -> None:
    with processes.running(limited, daemon.address, 2 * SEGMENT, context=processes.FORK) as child:
        refusal, kept = child.receive()
    assert isinstance(refusal, nexuskv.PinningRefused)
    assert "cannot lock 1 MiB in memory" in str(refusal)
    assert "RLIMIT_MEMLOCK allows 2 MiB: raise LimitMEMLOCK=" in str(refusal)
    assert kept == 0  # all or nothing


def limited(pipe: Connection, address: str, limit: int) -> None:
    """A client without privilege that may lock less than its pool; it tells the refusal and what stayed locked."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
    become_nobody()
    with nexuskv.connect(address) as client:
        cache = client.open(small(kib=64), model="m")
        put(cache, keys(cache, 60))
        read(cache, 60)
        try:
            cache.pin_pool()
        except nexuskv.PinningRefused as refusal:
            pipe.send((refusal, locked()))
