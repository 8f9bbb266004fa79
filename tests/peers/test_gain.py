"""A pull is weighed against computing: before it is made, by `explain`, and when it is asked for, by the daemon.

What a way costs is what the daemon measured of its pulls. The costs of computing that the tests declare lie so far from
it that no machine is quick or slow enough to turn a decision.
"""

import pytest

import nexuskv
from nexuskv.gain import Decision, Explanation
from nexuskv.protocol.hosts import PeerStats
from nexuskv.protocol.messages import MAX_KEYS
from tests.end_to_end.test_cli import answer
from tests.support import pages
from tests.support.hosts import MODEL, Host, pair, peer, running, wait_for

DEAR, CHEAP = 1.0, 1e-15
"""Seconds a token."""


def opened(client: nexuskv.Client, kib: int = 256) -> nexuskv.Cache:
    return client.open(pages.small(kib=kib), model=MODEL)


def explained(
    client: nexuskv.Client, other: Host, cache: nexuskv.Cache, keys: list[bytes]
) -> tuple[PeerStats, Explanation]:
    """What is explained, and the figures of a peer that it was explained by: a ping may change them at any time."""
    while True:
        before, found = peer(client, other.address), cache.explain(keys)
        if before is not None and before == peer(client, other.address):
            return before, found


def test_what_computes_quicker_is_not_pulled() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 40)
        pages.put(theirs, keys)
        assert ours.fetch(keys[:20]).pages == 20
        known = peer(here, first.address)
        assert known is not None
        assert known.path == "tcp"
        assert known.bandwidth > 0
        assert known.latency > 0
        ours.gain.declare(CHEAP)
        came = ours.fetch(keys)
        assert came.pages == 0
        assert "computing is quicker" in came.reason
        ours.gain.declare(0.0, 1.0)  # attention over a long context
        assert ours.fetch(keys).pages == 20


def test_a_fetch_is_weighed_by_prefills_that_were_observed() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 12)
        pages.put(theirs, keys)
        assert ours.fetch(keys[:6]).pages == 6
        ours.gain.declare(DEAR)
        ours.gain.observe(1000, 1000 * CHEAP)
        assert "computing is quicker" in ours.fetch(keys).reason


def test_what_nobody_measured_yet_is_pulled_and_told_of() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 3)
        pages.put(theirs, keys)
        ours.gain.declare(CHEAP)
        found = ours.explain(keys)
        assert (found.decision, len(found.options)) == (Decision.RECOMPUTE, 1)
        assert f"{first.address} has it up to token 12, at a cost that the first fetch" in found.reason
        assert ours.fetch(keys).pages == 3


def test_a_peer_that_was_pulled_from_is_a_way_with_its_numbers() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 40)
        pages.put(theirs, keys)
        assert ours.fetch(keys[:10]).pages == 10
        ours.gain.declare(DEAR)
        known, found = explained(here, first, ours, keys)
        assert (found.decision, found.path, found.peer) == (Decision.PULL_FROM_PEER, "tcp", first.address)
        assert (found.boundary_tokens, found.pages, found.nbytes) == (160, 30, 30 << 18)
        assert [option.path for option in found.options] == ["none", "shared_memory", "tcp"]
        pull = 2 * known.latency + found.nbytes / known.bandwidth
        read = ours.gain.paths.shared_memory.seconds(40, 40 << 18)
        assert found.cache_seconds == pytest.approx(pull + read)
        assert found.compute_seconds == 160
        assert f"over tcp from {first.address}, up to token 160" in found.reason
        assert ours.lookup(keys) == 10, "explaining pulls nothing"


def test_a_pull_that_is_slower_than_computing_is_said_to_be() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 40)
        pages.put(theirs, keys)
        assert ours.fetch(keys[:10]).pages == 10
        ours.gain.declare(CHEAP)
        found = ours.explain(keys)
        assert found.decision is Decision.RECOMPUTE
        assert (
            f"pulling 160 tokens more over tcp from {first.address} is slower than computing" in found.reason
        )
        assert ours.fetch(keys).pages == 0


def test_every_host_that_has_more_is_told_of_and_the_longest_is_chosen() -> None:
    short, long = Host(), Host()
    both = Host(peers=[short.address, long.address])
    with running(short, long, both), both.client() as here, short.client() as one, long.client() as two:
        wait_for(here, short, long)
        ours = opened(here)
        warm, keys = pages.keys(ours, 8, branch=1), pages.keys(ours, 20)
        for client, first, count in ((one, 0, 7), (two, 4, 14)):
            pages.put(opened(client), warm[: first + 4])
            assert ours.fetch(warm[: first + 4]).pages == 4
            pages.put(opened(client), keys[:count])
        ours.gain.declare(DEAR)
        found = ours.explain(keys)
        assert (found.peer, found.boundary_tokens) == (long.address, 56)
        pulls = {each.peer: each.boundary_tokens for each in found.options if each.peer}
        assert pulls == {short.address: 28, long.address: 56}


def test_a_chain_longer_than_a_message_is_offered_whole() -> None:
    options = ("--index-entries", "30000")
    with pair(*options) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there, kib=1), opened(here, kib=1)
        keys = pages.keys(theirs, 2 * MAX_KEYS + 100)
        pages.put(theirs, keys[: MAX_KEYS + 50])
        assert ours.fetch(keys[:10]).pages == 10
        ours.gain.declare(DEAR)
        assert ours.explain(keys).boundary_tokens == 4 * (MAX_KEYS + 50)


def test_of_a_recurrence_the_checkpoint_of_a_peer_is_offered() -> None:
    state = nexuskv.mamba2(
        "state", layers=1, heads=4, head_dim=16, state_size=16, page_tokens=4, dtype="float16", engine_family="VLLM"
    )  # fmt: skip
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(state, model=MODEL), here.open(state, model=MODEL)
        keys = pages.keys(theirs, 9)
        pages.put(theirs, keys)
        assert ours.fetch(keys[:4]).pages == 1
        ours.gain.declare(DEAR)
        found = ours.explain(keys)
        assert (found.decision, found.peer, found.boundary_tokens) == (
            Decision.PULL_FROM_PEER, first.address, 36,
        )  # fmt: skip
        assert (found.pages, found.nbytes) == (1, state.page_bytes)


def test_peers_that_are_gone_offer_nothing() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 6)
        pages.put(theirs, keys)
        assert ours.fetch(keys[:3]).pages == 3
        ours.gain.declare(DEAR)
        first.daemon.process.kill()
        wait_for(here, first, state="connecting")
        found = ours.explain(keys)
        assert (found.path, found.boundary_tokens) == ("shared_memory", 12)
        assert first.address not in found.reason


def test_the_command_takes_the_peers_of_a_daemon() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        pages.put(theirs, pages.keys(theirs, 10))
        words = (
            "explain", "llama-3-8b-page16", "--tokens", "4096", "--resident", "1024", "--seconds-per-token", "1",
            "--peers", "--socket", second.daemon.address, "--json",
        )  # fmt: skip
        assert f"{first.address} has it up to token 4,096" in answer(*words)["reason"]
        assert ours.fetch(pages.keys(ours, 10)).pages == 10
        found = answer(*words)
        assert (found["decision"], found["path"], found["peer"]) == ("pull_from_peer", "tcp", first.address)
        assert found["boundary_tokens"] == 4096
