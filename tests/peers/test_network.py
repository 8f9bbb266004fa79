"""Three hosts in network namespaces: pulls over real links, partitions, delay and loss."""

from collections.abc import Iterator

import pytest

import nexuskv
from tests.support import network, pages, redis_server
from tests.support.hosts import MODEL, Host, opened, peer, running, wait_for
from tests.support.network import Network
from tests.support.waiting import until

PORT = 7800
pytestmark = network.NEEDED


@pytest.fixture(name="net")
def three_hosts() -> Iterator[Network]:
    with network.network() as net:
        yield net


def host(
    net: Network, name: str, *options: str, peers: str = "", ip: str = "", memory: str = "64MiB"
) -> Host:
    """A daemon on a host; `peers` are the names of those that it dials."""
    addresses = [f"tcp://{net.address(each)}:{PORT}" for each in peers]
    return Host(
        "--insecure-peers", *options,
        peers=addresses, port=PORT, ip=ip or net.address(name), under=net.under(name), memory=memory,
    )  # fmt: skip


def test_three_hosts_share_what_each_computed(net: Network) -> None:
    a, b, c = host(net, "a", peers="bc"), host(net, "b", peers="ac"), host(net, "c", peers="ab")
    with running(a, b, c), a.client() as one, b.client() as two, c.client() as three:
        clients, hosts = (one, two, three), (a, b, c)
        for client, own in zip(clients, hosts, strict=True):
            wait_for(client, *(other for other in hosts if other is not own))
        chains = [pages.keys(opened(client), 6, branch) for branch, client in enumerate(clients)]
        for client, chain in zip(clients, chains, strict=True):
            pages.put(opened(client), chain)
        for client in clients:
            for chain in chains:
                assert opened(client).fetch(chain).reason == ""
                assert pages.verified(opened(client), chain) == 6


def test_the_wire_carries_the_selected_blocks_and_little_else(net: Network) -> None:
    sparse = nexuskv.nsa(
        "nsa", page_tokens=512, block_tokens=64, kv_heads=2, head_dim=256, dtype="float32", engine_family="VLLM"
    )  # fmt: skip
    block, page = 64 * 2 * 256 * 4, sparse.page_bytes
    a, b = host(net, "a"), host(net, "b", peers="a")
    with running(a, b), a.client() as one, b.client() as two:
        wait_for(two, a)
        theirs, ours = one.open(sparse, model=MODEL), two.open(sparse, model=MODEL)
        keys = pages.keys(theirs, 8)
        pages.put(theirs, keys)
        before = net.received("b")
        with ours.blocks({key: [3, 6] for key in keys}, fetch=True) as found:
            assert len(found) == 16
        came = net.received("b") - before
        assert 16 * block <= came < 1.1 * 16 * block < 8 * page / 3
        before = net.received("b")
        assert ours.fetch(keys).pages == 8
        assert net.received("b") - before >= 8 * page


def test_a_partition_is_a_miss_in_time_and_heals(net: Network) -> None:
    a, b, c = host(net, "a"), host(net, "b", peers="ac"), host(net, "c")
    with running(a, b, c), a.client() as one, b.client() as two, c.client() as three:
        wait_for(two, a, c)
        keys, more = pages.keys(opened(one), 6), pages.keys(opened(one), 6, branch=1)
        pages.put(opened(one), keys)
        pages.put(opened(three), keys[:2])
        pages.put(opened(one), more)
        net.cut("a")
        came = opened(two).fetch(keys, within=2.0)
        assert came.source == c.address  # whoever is still there is asked all the same
        assert pages.verified(opened(two), keys) == 2
        until(lambda: state(two, a) == "connecting", "the host behind the partition is given up")
        assert opened(two).fetch(more).pages == 0
        net.heal("a")
        wait_for(two, a)
        assert opened(two).fetch(more).pages == 6


def state(client: nexuskv.Client, other: Host) -> str:
    found = peer(client, other.address)
    return found.state if found is not None else ""


def test_a_partition_while_pages_are_pulled(net: Network) -> None:
    a, b = host(net, "a", memory="512MiB"), host(net, "b", peers="a", memory="512MiB")
    with running(a, b), a.client() as one, b.client() as two:
        wait_for(two, a)
        theirs, ours = opened(one, kib=1024), opened(two, kib=1024)
        keys = pages.keys(theirs, 300)
        pages.put(theirs, keys)
        ours.prefetch(keys)
        until(lambda: ours.lookup(keys) > 0, "some pages are here")
        net.cut("a")
        until(lambda: state(two, a) != "connected", "the peer is given up, and with it the pull")
        until(lambda: all(arena.writing == 0 for arena in two.stats().arenas), "the slots are back")
        came = pages.verified(ours, keys)
        assert pages.put(ours, keys) == 300 - came
        until(lambda: one.evict().pages == 0 and one.stats().arenas[0].resident == 0, "no pin is left behind")


@pytest.mark.parametrize(("delay", "loss"), [(0.01, 0.0), (0.002, 0.01)], ids=["delay", "loss"])
def test_a_slow_or_lossy_link_brings_the_same_bytes(net: Network, delay: float, loss: float) -> None:
    with network.wire(net, delay=delay, loss=loss) as wire:
        a = host(net, "a", ip=wire.address("a"))
        b = Host("--insecure-peers", peers=[a.address], port=PORT, ip=wire.address("b"), under=net.under("b"))
        with running(a, b), a.client() as one, b.client() as two:
            wait_for(two, a)
            theirs, ours = opened(one), opened(two)
            keys = pages.keys(theirs, 100)
            pages.put(theirs, keys)
            until(lambda: ours.fetch(keys, within=20.0).reason == "", "all pages are here")
            assert pages.verified(ours, keys) == 100
            known = peer(two, a.address)
            assert known is not None
            assert known.bad_pages == 0
            assert known.latency > delay


@redis_server.NEEDED
def test_hosts_behind_a_partition_from_the_directory_serve_on(net: Network) -> None:
    with redis_server.running(under=net.under("c"), ip=net.address("c")) as server:
        a = host(net, "a", "--directory", server.url)
        b = host(net, "b", "--directory", server.url)
        with running(a, b), a.client() as one, b.client() as two:
            keys, more = pages.keys(opened(one), 6), pages.keys(opened(one), 6, branch=1)
            pages.put(opened(one), keys)
            until(lambda: opened(two).fetch(keys).reason == "", "the pages are found")
            net.cut("c")
            pages.put(opened(one), more)
            assert opened(two).fetch(more).pages == 6  # from whom it is connected to
            assert pages.verified(opened(two), keys) == 6
