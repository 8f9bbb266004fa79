"""Pages of another host are pulled, checked and found here, byte for byte."""

import math
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

import nexuskv
from nexuskv.protocol.messages import MAX_KEYS
from tests.support import pages
from tests.support.hosts import MODEL, Host, opened, pair, peer, running, wait_for
from tests.support.processes import running as child
from tests.support.waiting import until


def test_a_match_that_fetches_finds_what_another_host_has() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 20)
        pages.put(theirs, keys)
        assert pages.verified(ours, keys) == 0
        with ours.match(keys, fetch=True) as hit:
            assert len(hit) == 20
            assert pages.intact(hit)
        assert pages.verified(ours, keys) == 20


def test_only_what_is_absent_moves() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 12)
        pages.put(theirs, keys)
        pages.put(ours, keys[:7])
        came = ours.fetch(keys)
        assert (came.pages, came.bytes, came.source, came.reason) == (5, 5 * 65536, first.address, "")
        known = peer(here, first.address)
        assert known is not None
        assert (known.pages_in, known.bytes_in) == (5, 5 * 65536)
        assert ours.fetch(keys).pages == 0


def test_a_branch_brings_only_its_own_pages() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        trunk = [1] * 4 * 10
        stem, branch = theirs.keys(trunk), theirs.keys(trunk + [2] * 4 * 3)
        pages.put(theirs, stem)
        pages.put(theirs, branch)
        assert ours.fetch(stem).pages == 10
        assert ours.fetch(branch).pages == 3
        assert pages.verified(ours, branch) == 13


def test_the_peer_with_the_longest_prefix_is_asked() -> None:
    short, long = Host(), Host()
    both = Host(peers=[short.address, long.address])
    with running(short, long, both), both.client() as here, short.client() as one, long.client() as two:
        wait_for(here, short, long)
        ours = opened(here)
        keys = pages.keys(ours, 16)
        pages.put(opened(one), keys[:5])
        pages.put(opened(two), keys[:11])
        came = ours.fetch(keys)
        assert (came.pages, came.source) == (11, long.address)
        assert pages.verified(ours, keys) == 11


def test_nobody_has_more() -> None:
    with pair() as (_, second), second.client() as here:
        ours = opened(here)
        came = ours.fetch(pages.keys(ours, 3))
        assert came.pages == 0
        assert "no peer" in came.reason


def test_a_daemon_without_peers_says_so() -> None:
    with running(alone := Host()), alone.client() as client:
        ours = opened(client)
        assert "no peer" in ours.fetch(pages.keys(ours, 3)).reason
        with ours.match(pages.keys(ours, 3), fetch=True) as hit:
            assert len(hit) == 0


@pytest.mark.parametrize("within", [math.inf, 1e300, 1e-300, 0.0, -1.0, math.nan])
def test_every_number_of_seconds_is_a_time_limit(within: float) -> None:
    with running(alone := Host()), alone.client() as client:
        ours = opened(client)
        assert "no peer" in ours.fetch(pages.keys(ours, 3), within=within).reason


def test_what_is_no_key_is_refused_by_the_call_that_has_it() -> None:
    with running(alone := Host()), alone.client() as client:
        ours = opened(client)
        group = client.open_group([ours.descriptor], model="m")
        right = pages.keys(ours, 3)
        calls: list[Callable[[Any], object]] = [
            ours.fetch,
            ours.prefetch,
            lambda own: group.fetch([own]),
            lambda own: group.prefetch([own]),
        ]
        for call in calls:
            for wrong in ([b"short"], ["x" * 32], [*right, None]):
                with pytest.raises(nexuskv.BadRequest, match="compute"):
                    call(wrong)
        assert pages.put(ours, right) == 3


def test_prefetch_does_not_wait_and_a_later_match_finds_the_pages() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 30)
        pages.put(theirs, keys)
        ours.prefetch(keys)
        until(lambda: ours.lookup(keys) == 30, "the pages are here")
        assert pages.verified(ours, keys) == 30


def test_a_chain_longer_than_a_message() -> None:
    options = ("--index-entries", "30000")
    with pair(*options) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1), opened(here, kib=1)
        keys = pages.keys(theirs, 2 * MAX_KEYS + 100)
        pages.put(theirs, keys)
        assert ours.fetch(keys, within=30).pages == len(keys)
        assert here.evict().pages == len(keys)
        ours.prefetch(keys)
        until(lambda: ours.lookup(keys) == len(keys), "the pages are here")


def test_of_a_recurrence_only_the_last_checkpoint_moves() -> None:
    state = nexuskv.mamba2(
        "state", layers=1, heads=4, head_dim=16, state_size=16, page_tokens=4, dtype="float16", engine_family="VLLM"
    )  # fmt: skip
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(state, model=MODEL), here.open(state, model=MODEL)
        keys = pages.keys(theirs, 9)
        pages.put(theirs, keys)
        came = ours.fetch(keys)
        assert (came.pages, came.bytes) == (1, state.page_bytes)
        with ours.match(keys) as hit:
            assert (hit.start, hit.stop) == (8, 9)
            assert pages.intact(hit)


def test_what_one_host_pulled_it_serves_to_the_next() -> None:
    origin = Host()
    middle = Host(peers=[origin.address])
    last = Host(peers=[middle.address])
    with (
        running(origin, middle, last),
        origin.client() as one,
        middle.client() as two,
        last.client() as three,
    ):
        wait_for(two, origin)
        wait_for(three, middle)
        keys = pages.keys(opened(one), 6)
        pages.put(opened(one), keys)
        assert opened(two).fetch(keys).pages == 6
        assert opened(three).fetch(keys).source == middle.address
        assert pages.verified(opened(three), keys) == 6


def test_both_ends_of_a_link_pull() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(ours, 4)
        pages.put(ours, keys)  # the host that dialled
        assert theirs.fetch(keys).source == second.address
        assert pages.verified(theirs, keys) == 4


def test_pages_that_somebody_here_computes_are_left_to_him() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 4)
        pages.put(theirs, keys)
        with ours.reserve(keys[:2]) as mine:
            came = ours.fetch(keys)
            assert came.pages == 0
            assert "computing" in came.reason
            pages.fill(mine)
        assert ours.fetch(keys).pages == 2
        assert pages.verified(ours, keys) == 4


def _fetch_one(pipe: Connection, address: str, keys: list[bytes]) -> None:
    with nexuskv.connect(address) as client:
        came = opened(client, kib=1024).fetch(keys)
        pipe.send((came.pages, came.reason))


def test_two_fetches_of_the_same_pages_share_one_pull() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1024), opened(here, kib=1024)
        keys = pages.keys(theirs, 24)
        pages.put(theirs, keys)
        address = second.daemon.address
        with child(_fetch_one, address, keys) as one, child(_fetch_one, address, keys) as two:
            assert one.receive()[1] == two.receive()[1] == ""
        known = peer(here, first.address)
        assert known is not None
        assert known.pages_in == 24
        assert pages.verified(ours, keys) == 24


def test_arrays_of_fetched_pages_are_what_was_written() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 1)
        with theirs.reserve(keys) as reserved:
            reserved[0]["key"][...] = 1.5
            reserved[0]["value"][...] = -2.0
        with ours.match(keys, fetch=True) as hit:
            assert np.all(hit[0]["key"] == 1.5)
            assert np.all(hit[0]["value"] == -2.0)


def test_users_of_one_tenant_have_one_name_on_all_hosts() -> None:
    names = ("--tenant", f"{os.geteuid()}=team-a", "--tenant", "987654=team-b")
    with pair(*names) as (first, second), first.client() as there, second.client() as here:
        assert (there.tenant, here.tenant) == ("team-a", "team-a")
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 3)
        pages.put(theirs, keys)
        assert ours.fetch(keys).pages == 3
