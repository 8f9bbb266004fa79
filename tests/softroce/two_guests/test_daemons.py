"""Daemons of two hosts whose pages move by RDMA READ, and what an engine sees when the other host or the wire fails."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nexuskv
from tests.softroce import far_daemon
from tests.softroce.far_daemon import LARGE, MEMORY, SMALL, FarDaemon, opened
from tests.softroce.guests import FIRST
from tests.softroce.paths import known, pages_come_by, path
from tests.softroce.pausing import paused
from tests.support import pages, presets
from tests.support.hosts import Host, running
from tests.support.waiting import until

PORT = 7800
OPEN = ("--insecure-peers", "--segment-bytes", "8MiB")
BOTH = ("--data", "rdma:", "--data", "tcp:")
BACK = ("--peer", f"tcp://{FIRST.address}:{PORT}")  # who was away dials at once
KINDS = (
    "llama-3-8b-page16",
    "deepseek-v3-mla-page16",
    "deepseek-v3.2-dsa-page64",
    "deepseek-v3.2-indexer-page64",
    "kimi-linear-48b-kda-checkpoint256",
    "mamba2-2.7b-checkpoint256",
    "nsa-27b-page64",
    "qwen2-vl-7b-image448",
    "llama-3-8b-tot-page16",
)
COUNTERS = Path("/sys/class/infiniband/rxe0/ports/1/hw_counters")
PATH_MTU = 4096


@pytest.fixture(autouse=True)
def nothing_left_by_the_test() -> None:
    """A daemon of all tests makes segments in each of them: that nothing is left is seen at the end of the run."""


@pytest.fixture(scope="module")
def far() -> Iterator[FarDaemon]:
    with far_daemon.running(PORT) as started:
        started.start(*OPEN, *BOTH, *BACK)
        yield started


@pytest.fixture(scope="module")
def near(far: FarDaemon) -> Iterator[Host]:
    host = Host(*OPEN, *BOTH, memory=MEMORY, ip=FIRST.address, port=PORT, peers=[far.address])
    with running(host):
        yield host


@pytest.fixture
def here(near: Host, far: FarDaemon) -> Iterator[nexuskv.Client]:
    with near.client() as client:
        pages_come_by(client, far, "rdma")
        yield client


def slots_are_back(client: nexuskv.Client) -> bool:
    """Whether nothing is being written or waits for a pin."""
    return all(arena.writing == arena.retiring == 0 for arena in client.stats().arenas)


@pytest.mark.parametrize("kind", KINDS)
def test_state_of_every_kind_comes_by_rdma(here: nexuskv.Client, far: FarDaemon, kind: str) -> None:
    cache = opened(here, kind)
    keys = presets.keys(cache, 3)
    assert far.put(kind, 3) == 3
    rdma, tcp, received = (
        path(here, far, "rdma").bytes_in,
        path(here, far, "tcp").bytes_in,
        received_packets(),
    )
    came = cache.fetch(keys, within=20)
    assert (came.source, came.reason) == (far.address, "")
    assert cache.lookup(keys) == 3
    with cache.match(keys) as hit:
        assert len(hit) == came.pages > 0
        assert pages.intact(hit)
    assert came.bytes == came.pages * cache.descriptor.page_bytes
    assert path(here, far, "rdma").bytes_in - rdma == came.bytes
    assert path(here, far, "tcp").bytes_in == tcp
    assert (received_packets() - received) * PATH_MTU >= came.bytes  # by the device's own count


def received_packets() -> int:
    return int((COUNTERS / "rcvd_pkts").read_text())


def test_a_branch_brings_only_its_own_pages(here: nexuskv.Client, far: FarDaemon) -> None:
    cache = opened(here, "llama-3-8b-tot-page16")
    far.put("llama-3-8b-tot-page16", 3)
    cache.fetch(presets.keys(cache, 3))
    far.put("llama-3-8b-tot-page16", 5)
    rdma = path(here, far, "rdma").bytes_in
    assert cache.fetch(presets.keys(cache, 5)).pages == 2
    assert path(here, far, "rdma").bytes_in - rdma == 2 * cache.descriptor.page_bytes
    assert pages.verified(cache, presets.keys(cache, 5)) == 5


def test_each_path_has_figures_of_its_own(here: nexuskv.Client, near: Host, far: FarDaemon) -> None:
    rdma = path(here, far, "rdma")
    assert rdma.latency > 0
    assert rdma.bandwidth > 0
    assert (known(here, far).path, known(here, far).bandwidth) == ("rdma", rdma.bandwidth)
    assert "pages come over rdma" in near.daemon.log


@contextlib.contextmanager
def pulling(here: nexuskv.Client, far: FarDaemon, branch: int) -> Iterator[tuple[nexuskv.Cache, list[bytes]]]:
    """In the middle of a long pull; at the end no slot may be left behind, and the rest can be computed."""
    cache = opened(here, LARGE)
    keys = presets.keys(cache, 64, branch)
    here.evict()
    far.evict()
    far.put(LARGE, 64, branch)
    cache.prefetch(keys)
    until(lambda: cache.lookup(keys) > 0, "some pages are here")
    yield cache, keys
    until(lambda: slots_are_back(here), "the slots are back")
    until(
        lambda: pages.put(cache, keys) or cache.lookup(keys) == 64, "the rest is computed, or came after all"
    )
    assert pages.verified(cache, keys) == 64


def test_a_link_that_goes_down_and_up(here: nexuskv.Client, far: FarDaemon) -> None:
    with pulling(here, far, branch=1):
        link("down")
        missed_in_time(here)
        link("up")
    pages_come_by(here, far, "rdma")


def missed_in_time(here: nexuskv.Client) -> None:
    """What another host would have is a miss, and local requests go on."""
    cache = opened(here, SMALL)
    keys = presets.keys(cache, 2, branch=time.monotonic_ns() % 2**31)
    start = time.monotonic()
    with cache.match(keys, fetch=True, within=0.5) as hit:
        assert len(hit) == 0
    assert time.monotonic() - start < 10  # of an emulated machine
    assert pages.put(cache, keys) == 2


def link(state: str) -> None:
    subprocess.run(["ip", "link", "set", FIRST.link, state], check=True)


def test_a_host_that_is_paused(here: nexuskv.Client, far: FarDaemon) -> None:
    with pulling(here, far, branch=2), paused(4):
        missed_in_time(here)
    pages_come_by(here, far, "rdma")


def test_pages_come_by_tcp_while_reads_do_not_get_through(here: nexuskv.Client, far: FarDaemon) -> None:
    cache = opened(here, LARGE)
    keys = presets.keys(cache, 8, branch=3)
    far.put(LARGE, 8, branch=3)
    with reads_dropped():
        assert cache.fetch(keys, within=30).reason == ""  # the rest of the very batch that failed
        assert pages.verified(cache, keys) == 8
        assert known(here, far).path == "tcp"
        assert path(here, far, "rdma").trouble
        assert path(here, far, "tcp").bytes_in > 0
    pages_come_by(here, far, "rdma")
    assert path(here, far, "rdma").trouble == ""


@contextlib.contextmanager
def reads_dropped() -> Iterator[None]:
    """What comes for the device is dropped, and all else gets through."""
    # The rule for local addresses has to stand behind, and nothing can stand before its place.
    change_rules("add pref 20 lookup local", "del pref 0")
    change_rules("add pref 10 iif eth0 ipproto udp dport 4791 blackhole")
    yield
    change_rules("del pref 10", "add pref 0 lookup local", "del pref 20")


def change_rules(*changes: str) -> None:
    for words in changes:
        subprocess.run(["ip", "rule", *words.split()], check=True)


def test_a_peer_that_is_killed_while_it_is_pulled_from_and_comes_back_with_other_content(
    here: nexuskv.Client, far: FarDaemon
) -> None:
    with pulling(here, far, branch=4):
        far.kill()
        missed_in_time(here)
    far.start(*OPEN, *BOTH, *BACK)
    pages_come_by(here, far, "rdma")
    cache = opened(here, LARGE)
    old, new = presets.keys(cache, 16, branch=4), presets.keys(cache, 16, branch=5)
    far.put(LARGE, 16, branch=5)  # in segments of the same numbers
    here.evict()
    assert "no peer" in cache.fetch(old).reason
    assert cache.fetch(new, within=20).pages == 16
    assert pages.verified(cache, new) == 16
    assert known(here, far).bad_pages == 0


def test_a_peer_without_rdma_is_pulled_from_by_tcp(here: nexuskv.Client, far: FarDaemon) -> None:
    far.kill()
    far.start(*OPEN, "--data", "tcp:", *BACK)
    pages_come_by(here, far, "tcp")
    assert path(here, far, "rdma").trouble == "the peer has no rdma"
