"""Hosts find each other's pages through a directory, and do without it when it is gone, slow or wrong."""

import contextlib
import math
import signal
from collections.abc import Iterator

import pytest

import nexuskv
from nexuskv_daemon.peers.board import HOST, PAGE
from tests.support import pages, redis_server
from tests.support.daemon import Daemon
from tests.support.hosts import MODEL, Host, opened, running, wait_for
from tests.support.redis_server import RedisServer
from tests.support.waiting import until

pytestmark = redis_server.NEEDED


@contextlib.contextmanager
def strangers(url: str, count: int = 2) -> Iterator[list[Host]]:
    """Hosts that know of each other only through the directory."""
    hosts = [Host("--directory", url) for _ in range(count)]
    with running(*hosts):
        yield hosts


def said(server: RedisServer) -> int:
    """How many pages stand in the directory."""
    return server.count(PAGE)


def test_hosts_find_each_other_through_the_directory() -> None:
    with (
        redis_server.running() as server,
        strangers(server.url, 3) as (one, two, three),
        one.client() as first,
        two.client() as second,
        three.client() as third,
    ):
        keys = pages.keys(opened(first), 12)
        pages.put(opened(first), keys[:5])
        pages.put(opened(second), keys)
        until(lambda: said(server) == 12, "the directory knows all pages")
        assert opened(third).fetch(keys).source == two.address
        assert pages.verified(opened(third), keys) == 12
        assert third.peers().directory == "up"


def test_the_longest_prefix_takes_a_query_for_each_halving() -> None:
    with (
        redis_server.running() as server,
        strangers(server.url) as (one, two),
        one.client() as first,
        two.client() as second,
    ):
        theirs, ours = opened(first, kib=1), opened(second, kib=1)
        keys = pages.keys(theirs, 3000)
        pages.put(theirs, keys[:1234])
        until(lambda: said(server) == 1234, "the directory knows all pages")
        before = server.calls("srandmember")
        assert ours.fetch(keys).pages == 1234
        assert server.calls("srandmember") - before <= math.ceil(math.log2(3001)) + 1


def test_evicted_pages_leave_the_directory() -> None:
    with redis_server.running() as server, strangers(server.url, 1) as (one,), one.client() as client:
        ours = opened(client)
        pages.put(ours, pages.keys(ours, 9))
        until(lambda: said(server) == 9, "the directory knows all pages")
        client.evict()
        until(lambda: said(server) == 0, "the directory knows none")


def test_checkpoints_are_found_wherever_they_stand() -> None:
    state = nexuskv.mamba2(
        "state", layers=1, heads=4, head_dim=16, state_size=16, page_tokens=4, dtype="float16", engine_family="VLLM"
    )  # fmt: skip
    with (
        redis_server.running() as server,
        strangers(server.url) as (one, two),
        one.client() as first,
        two.client() as second,
    ):
        theirs, ours = first.open(state, model=MODEL), second.open(state, model=MODEL)
        keys = pages.keys(theirs, 50)
        pages.put(theirs, [keys[6], keys[29]])
        until(lambda: said(server) == 2, "the directory knows the checkpoints")
        assert ours.fetch(keys).pages == 1
        with ours.match(keys) as hit:
            assert (hit.start, hit.stop) == (29, 30)


def test_a_flushed_directory_is_filled_again() -> None:
    with (
        redis_server.running() as server,
        strangers(server.url) as (one, two),
        one.client() as first,
        two.client() as second,
    ):
        keys = pages.keys(opened(first), 9)
        pages.put(opened(first), keys)
        until(lambda: said(server) == 9, "the directory knows all pages")
        server.do("flushall")
        assert opened(second).fetch(keys).pages in {
            0,
            9,
        }  # a miss, or the link is there already: no error
        until(lambda: said(server) == 9, "the directory knows all pages again")
        assert opened(second).fetch(keys).reason == ""


def test_a_directory_that_comes_late_or_back_is_told_everything() -> None:
    with redis_server.running() as server:
        server.stop()
        with strangers(server.url) as (one, two), one.client() as first, two.client() as second:
            keys = pages.keys(opened(first), 9)
            pages.put(opened(first), keys)
            until(lambda: first.peers().directory.startswith("down"), "it is known to be down")
            assert opened(second).fetch(keys).pages == 0
            server.start()
            until(lambda: said(server) == 9, "the directory knows all pages")
            until(lambda: opened(second).fetch(keys).reason == "", "the pages are found")


def test_without_the_directory_static_peers_go_on() -> None:
    with redis_server.running() as server:
        one = Host("--directory", server.url)
        two = Host("--directory", server.url, peers=[one.address])
        with running(one, two), one.client() as first, two.client() as second:
            wait_for(second, one)
            keys = pages.keys(opened(first), 9)
            pages.put(opened(first), keys)
            server.stop()
            assert opened(second).fetch(keys).pages == 9


def test_a_stopped_directory_costs_a_little_and_is_soon_not_asked() -> None:
    with redis_server.running() as server:
        one = Host("--directory", server.url)
        two = Host("--directory", server.url, peers=[one.address])
        with running(one, two), one.client() as first, two.client() as second:
            wait_for(second, one)
            ours = opened(second)
            server.process.send_signal(signal.SIGSTOP)
            for branch in range(5):
                keys = pages.keys(ours, 4, branch)
                pages.put(opened(first), keys)
                assert ours.fetch(keys).pages == 4
            assert second.peers().directory.startswith("down")


LIES: dict[str, tuple[str, bytes]] = {
    "a page that its host has not": ("sadd", b""),
    "a host that is none": ("sadd", b"not eight bytes"),
    "another kind of key": ("lpush", b"x"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_directory_is_a_miss(lie: str) -> None:
    command, value = LIES[lie]
    with (
        redis_server.running() as server,
        strangers(server.url) as (one, two),
        one.client() as first,
        two.client() as second,
    ):
        ours = opened(second)
        keys = pages.keys(ours, 3)
        for key in keys:
            server.do(command, PAGE + key, value or first.boot_epoch.to_bytes(8, "little"))
        assert ours.fetch(keys).pages == 0
        pages.put(ours, keys)
        assert pages.verified(ours, keys) == 3


def test_a_directory_that_lies_about_addresses_is_a_miss() -> None:
    lies = (b"tcp://127.0.0.1:1", b"file:///etc/passwd", b"\xff\xfe", b"tcp://:", b"")
    with redis_server.running() as server, strangers(server.url, 1) as (one,), one.client() as client:
        ours = opened(client)
        keys = pages.keys(ours, 3)
        for number, address in enumerate(lies):
            ghost = bytes([number]) * 8
            server.do("set", HOST + ghost, address)
            server.do("sadd", PAGE + keys[0], ghost)
        assert ours.fetch(keys, within=3.0).pages == 0


def test_a_cluster_of_three_is_a_directory_too() -> None:
    with redis_server.cluster() as nodes:
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        with strangers(url) as (one, two), one.client() as first, two.client() as second:
            keys = pages.keys(opened(first), 40)
            pages.put(opened(first), keys)
            until(lambda: sum(map(said, nodes)) == 40, "the directory knows all pages")
            assert all(map(said, nodes)), "every node has some of them"
            assert opened(second).fetch(keys).pages == 40
            first.evict()
            until(lambda: sum(map(said, nodes)) == 40, "those of the second host stay")
            for node in nodes:
                node.do("flushall")
            until(lambda: sum(map(said, nodes)) == 40, "the directory knows all pages again")


def test_a_host_that_leaves_is_not_looked_for() -> None:
    with (
        redis_server.running() as server,
        strangers(server.url) as (one, two),
        one.client() as first,
        two.client() as second,
    ):
        keys = pages.keys(opened(first), 4)
        pages.put(opened(first), keys)
        until(lambda: said(server) == 4, "the directory knows all pages")
        one.daemon.stop()
        until(lambda: server.count(HOST) == 1, "its lease is gone")
        assert opened(second).fetch(keys).pages == 0


def test_a_directory_needs_an_address_to_tell() -> None:
    daemon = Daemon("--directory", "redis://127.0.0.1:1")
    try:
        assert daemon.process.wait(timeout=30) == 1
        assert "needs --listen" in daemon.log
    finally:
        daemon.clean_up()
