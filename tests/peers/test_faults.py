"""Peers that die, restart, evict or hang while pages are pulled: an engine gets a miss in time, and slots come back."""

import signal

import nexuskv
from tests.support import pages
from tests.support.hosts import Host, free_port, opened, pair, peer, running, wait_for
from tests.support.impostor import Impostor
from tests.support.waiting import until


def all_slots_are_back(cache: nexuskv.Cache, client: nexuskv.Client) -> bool:
    """Whether nothing is being written or waits for a pin."""
    return all(arena.writing == arena.retiring == 0 for arena in client.stats().arenas)


def test_a_peer_that_died_before_is_a_miss() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 5)
        pages.put(theirs, keys)
        first.daemon.stop(signal.SIGKILL)
        with ours.match(keys, fetch=True, within=2.0) as hit:
            assert len(hit) == 0
        assert pages.put(ours, keys) == 5


def test_a_peer_that_dies_while_it_is_pulled_from() -> None:
    with pair(memory="512MiB") as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1024), opened(here, kib=1024)
        keys = pages.keys(theirs, 300)
        pages.put(theirs, keys)
        ours.prefetch(keys)
        until(lambda: ours.lookup(keys) > 0, "some pages are here")
        first.daemon.stop(signal.SIGKILL)
        until(lambda: all_slots_are_back(ours, here), "the slots are back")
        came = pages.verified(ours, keys)
        assert pages.put(ours, keys) == 300 - came
        assert pages.verified(ours, keys) == 300


def test_a_peer_that_dies_after_a_pull_leaves_the_pages_here() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 5)
        pages.put(theirs, keys)
        assert ours.fetch(keys).pages == 5
        first.daemon.stop(signal.SIGKILL)
        assert pages.verified(ours, keys) == 5


def test_a_peer_that_restarts_with_other_content_is_asked_anew() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        old, new = pages.keys(theirs, 5), pages.keys(theirs, 5, branch=1)
        pages.put(theirs, old)
        assert ours.fetch(old[:2]).pages == 2  # its regions are known
        first.daemon.stop(signal.SIGKILL)
        first.daemon.restart("--fresh")
        wait_for(here, first)
        pages.put(theirs, new)  # in the slots where the old ones were
        assert "no peer" in ours.fetch(old).reason
        assert ours.fetch(new).pages == 5
        assert pages.verified(ours, new) == 5


def test_a_restarted_peer_serves_what_it_took_over() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 5)
        pages.put(theirs, keys)
        first.daemon.stop(signal.SIGKILL)
        first.daemon.restart()
        wait_for(here, first)
        assert ours.fetch(keys).pages == 5
        assert pages.verified(ours, keys) == 5


def test_a_puller_that_dies_leaves_no_pin_and_no_slot_behind() -> None:
    with pair(memory="512MiB") as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1024), opened(here, kib=1024)
        keys = pages.keys(theirs, 200)
        pages.put(theirs, keys)
        ours.prefetch(keys)
        until(lambda: ours.lookup(keys) > 0, "some pages are here")
        second.daemon.stop(signal.SIGKILL)
        until(lambda: there.evict().pages == 0 and there.stats().arenas[0].resident == 0, "no page is pinned")
        second.daemon.restart()
        until(lambda: all_slots_are_back(ours, here), "the slots are back")
        assert pages.verified(ours, keys) > 0


def test_pages_are_not_evicted_at_the_peer_while_they_are_pulled() -> None:
    with pair(memory="256MiB") as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1024), opened(here, kib=1024)
        keys = pages.keys(theirs, 100)
        for branch in range(1, 6):
            pages.put(theirs, keys)
            ours.prefetch(keys)
            while ours.lookup(keys) < 100:
                other = pages.keys(theirs, 80, branch)
                pages.put(theirs, other)  # wants the slots
                there.evict()
                if ours.fetch(keys, within=5.0).reason:
                    pages.put(theirs, keys)
            assert pages.verified(ours, keys) == 100
            here.evict()
        known = peer(here, first.address)
        assert known is not None
        assert known.bad_pages == 0


def test_a_full_arena_refuses_and_says_why() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1024), opened(here, kib=1024)
        keys = pages.keys(theirs, 20)
        pages.put(theirs, keys)
        held = pages.keys(ours, 60, branch=9)
        pages.put(ours, held)
        with ours.match(held):  # nothing may go
            came = ours.fetch(keys)
            assert came.pages < 20
            assert "no room" in came.reason
        assert ours.fetch(keys).reason == ""
        assert pages.verified(ours, keys) == 20


def test_a_stopped_peer_costs_the_deadline_and_no_more() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 5)
        pages.put(theirs, keys)
        first.daemon.process.send_signal(signal.SIGSTOP)
        try:
            with ours.match(keys, fetch=True, within=0.3) as hit:
                assert len(hit) == 0
            assert pages.put(ours, keys) == 5  # local requests go on
            until(lambda: _state(here, first) == "connecting", "the stopped peer is given up")
        finally:
            first.daemon.process.send_signal(signal.SIGCONT)
        wait_for(here, first)


def _state(client: nexuskv.Client, other: Host) -> str:
    found = peer(client, other.address)
    return found.state if found is not None else ""


def test_a_stopped_daemon_of_ones_own_is_a_miss_within_the_deadline() -> None:
    with pair() as (_, second), second.client() as here:
        ours = opened(here)
        keys = pages.keys(ours, 5)
        pages.put(ours, keys[:2])
        assert pages.verified(ours, keys) == 2
        ours.fetch(keys)
        second.daemon.process.send_signal(signal.SIGSTOP)
        try:
            with ours.match(keys, fetch=True, within=0.2) as hit:
                assert len(hit) == 2
        finally:
            second.daemon.process.send_signal(signal.SIGCONT)


def test_a_daemon_that_stops_while_it_pulls_ends_in_order() -> None:
    with pair(memory="512MiB") as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1024), opened(here, kib=1024)
        keys = pages.keys(theirs, 300)
        pages.put(theirs, keys)
        ours.prefetch(keys)
        until(lambda: ours.lookup(keys) > 0, "some pages are here")
        assert second.daemon.stop() == 0
        assert second.daemon.objects() == []


def test_a_daemon_that_hands_over_while_it_pulls_keeps_what_came() -> None:
    with pair(memory="512MiB") as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1024), opened(here, kib=1024)
        keys = pages.keys(theirs, 300)
        pages.put(theirs, keys)
        ours.prefetch(keys)
        until(lambda: ours.lookup(keys) > 0, "some pages are here")
        assert second.daemon.hand_over() == 0
        second.daemon.restart()
        until(lambda: all_slots_are_back(ours, here), "the slots are back")
        came = pages.verified(ours, keys)
        assert came > 0
        wait_for(here, first)
        assert ours.fetch(keys, within=20).reason == ""
        assert pages.verified(ours, keys) == 300


def test_hundred_peers_of_which_few_live() -> None:
    living = [Host() for _ in range(3)]
    taken = {host.address for host in living}
    dead: list[str] = []
    while len(dead) < 96:
        address = f"tcp://127.0.0.1:{free_port()}"
        if address not in taken:
            taken.add(address)
            dead.append(address)
    unroutable = ["tcp://198.51.100.7:7800"]  # nobody answers there, not even with a refusal
    addresses = [*dead[:50], *(host.address for host in living), *dead[50:], *unroutable]
    many = Host(peers=addresses)
    with running(*living, many), many.client() as here, living[2].client() as there:
        wait_for(here, *living)
        assert len(here.peers().peers) == 100
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 8)
        pages.put(theirs, keys)
        assert ours.fetch(keys).source == living[2].address
        assert pages.verified(ours, keys) == 8
        assert (
            many.daemon.log.count("Connect call failed") <= 100
        )  # said once each, however often it is tried


def test_all_hosts_may_have_the_same_list_of_peers() -> None:
    ports = [free_port() for _ in range(3)]
    addresses = [f"tcp://127.0.0.1:{port}" for port in ports]
    hosts = [Host(peers=addresses, port=port) for port in ports]
    with running(*hosts), hosts[0].client() as one, hosts[2].client() as three:
        until(lambda: _state(one, hosts[0]) == "myself", "it knows itself")
        wait_for(one, *hosts[1:])
        wait_for(three, *hosts[:2])
        keys = pages.keys(opened(three), 4)
        pages.put(opened(three), keys)
        assert opened(one).fetch(keys).source == hosts[2].address


def test_a_storm_of_reconnections_leaves_a_daemon_well() -> None:
    descriptor = pages.small()
    with (
        Impostor(descriptor, []) as other,
        running(host := Host(peers=[other.address])),
        host.client() as client,
    ):
        for _ in range(20):
            until(lambda: any(each.state == "connected" for each in client.peers().peers), "it is connected")
            other.hang_up()
        before = host.daemon.descriptors()
        until(lambda: any(each.state == "connected" for each in client.peers().peers), "it is connected")
        assert host.daemon.descriptors() <= before + 2
        ours = opened(client)
        assert pages.put(ours, pages.keys(ours, 3)) == 3
