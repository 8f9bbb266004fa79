"""Boundaries of groups come from other hosts whole or not at all."""

import msgspec
import pytest

import nexuskv
from nexuskv import contract
from nexuskv.contract import Descriptor, Window
from nexuskv.protocol.messages import MAX_KEYS
from nexuskv_daemon.peers import messages as p
from tests.support import impostor, pages
from tests.support.boundaries import boundary_keys, put_boundaries, verified_boundary
from tests.support.hosts import MODEL, TENANT, Host, pair, peer, running
from tests.support.impostor import Answer, Impostor
from tests.support.waiting import until

SEGMENTS = ("--segment-bytes", "256KiB")


def attention(name: str, head_dim: int = 8, dtype: str = "float16") -> Descriptor:
    return nexuskv.mha(
        name, layers=1, kv_heads=1, head_dim=head_dim, page_tokens=4, dtype=dtype, engine_family="VLLM"
    )


ATTENTION, INDEXER = attention("attention"), nexuskv.dsa_indexer(
    "indexer", index_dim=16, page_tokens=4, dtype="float16", engine_family="VLLM"
)  # fmt: skip
CHECKPOINT = nexuskv.mamba2(
    "checkpoint", heads=1, head_dim=8, state_size=8, page_tokens=8, dtype="float16", engine_family="VLLM"
)
WINDOW = nexuskv.mha(
    "window", layers=1, kv_heads=1, head_dim=24, page_tokens=4, dtype="float16", engine_family="VLLM",
    reuse=Window(tokens=10),
)  # fmt: skip
HYBRID = (ATTENTION, INDEXER, CHECKPOINT)


def moved(client: nexuskv.Client, other: Host) -> int:
    found = peer(client, other.address)
    assert found is not None
    return found.bytes_in


def test_the_largest_boundary_comes_with_just_what_it_needs() -> None:
    with pair(*SEGMENTS) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open_group(HYBRID, model=MODEL), here.open_group(HYBRID, model=MODEL)
        keys = boundary_keys(theirs, 5)
        put_boundaries(theirs, keys)
        with ours.match(keys, fetch=True) as hit:
            assert (hit.boundary, hit.tokens) == (5, 40)
            assert all(pages.intact(each) for each in hit)
        assert verified_boundary(ours, keys) == 5
        # Of five checkpoints one is of use.
        expected = 10 * ATTENTION.page_bytes + 10 * INDEXER.page_bytes + CHECKPOINT.page_bytes
        assert moved(here, first) == expected
        assert ours.fetch(keys) == (0, 0, "", "")


def test_only_what_is_absent_moves() -> None:
    with pair(*SEGMENTS) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open_group(HYBRID, model=MODEL), here.open_group(HYBRID, model=MODEL)
        keys = boundary_keys(theirs, 4)
        put_boundaries(theirs, keys)
        put_boundaries(ours, [keys[0][:6], keys[1][:6], keys[2][:3]])
        came = ours.fetch(keys)
        assert came[:3] == (
            5,
            2 * ATTENTION.page_bytes + 2 * INDEXER.page_bytes + CHECKPOINT.page_bytes,
            first.address,
        )
        assert verified_boundary(ours, keys) == 4


def test_what_came_is_evicted_as_a_whole() -> None:
    with pair(*SEGMENTS) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open_group(HYBRID, model=MODEL), here.open_group(HYBRID, model=MODEL)
        keys = boundary_keys(theirs, 3)
        put_boundaries(theirs, keys)
        assert ours.fetch(keys).reason == ""
        assert here.evict(CHECKPOINT.descriptor_id, nbytes=1).pages == 5
        assert [cache.lookup(own) for cache, own in zip(ours.caches, keys, strict=True)] == [4, 4, 0]


def test_a_page_without_its_indexer_page_is_no_hit() -> None:
    with pair(*SEGMENTS) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open_group(HYBRID, model=MODEL), here.open_group(HYBRID, model=MODEL)
        keys = boundary_keys(theirs, 4)
        put_boundaries(theirs, [keys[0][:4], keys[1][:4], keys[2][:2]])
        pages.put(theirs.caches[0], keys[0])
        pages.put(theirs.caches[1], keys[1][:7])  # the last one is missing
        pages.put(theirs.caches[2], keys[2])
        came = ours.fetch(keys)
        assert came.reason
        assert verified_boundary(ours, keys) == 3
        assert ours.caches[0].lookup(keys[0]) == 6  # nothing of the boundary that is not there


def test_a_member_that_nobody_has() -> None:
    with pair(*SEGMENTS) as (first, second), first.client() as there, second.client() as here:
        alone, ours = there.open(ATTENTION, model=MODEL), here.open_group(HYBRID, model=MODEL)
        keys = boundary_keys(ours, 3)
        pages.put(alone, keys[0])
        with ours.match(keys, fetch=True) as hit:
            assert hit.boundary == 0
        assert moved(here, first) == 0


def test_a_boundary_that_somebody_here_computes_is_left_to_him() -> None:
    with pair(*SEGMENTS) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open_group(HYBRID, model=MODEL), here.open_group(HYBRID, model=MODEL)
        keys = boundary_keys(theirs, 1)
        put_boundaries(theirs, keys)
        with ours.caches[2].reserve(keys[2]) as mine:
            came = ours.fetch(keys)
            assert (came.pages, "computing" in came.reason) == (0, True)
            pages.fill(mine)
        assert ours.fetch(keys).pages == 4
        assert verified_boundary(ours, keys) == 1


def test_a_window_comes_with_the_pages_before_its_boundary() -> None:
    kinds = (ATTENTION, WINDOW, CHECKPOINT)
    with pair(*SEGMENTS) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open_group(kinds, model=MODEL), here.open_group(kinds, model=MODEL)
        keys = boundary_keys(theirs, 6)
        put_boundaries(theirs, keys)
        with ours.match(keys, fetch=True) as hit:
            assert hit.boundary == 6
            assert (hit[1].start, hit[1].stop) == (9, 12)
            assert all(pages.intact(each) for each in hit)
        assert moved(here, first) == 12 * ATTENTION.page_bytes + 3 * WINDOW.page_bytes + CHECKPOINT.page_bytes


@pytest.mark.parametrize("wait", [True, False], ids=["fetch", "prefetch"])
def test_a_sequence_longer_than_a_message(wait: bool) -> None:
    options = (*SEGMENTS, "--index-entries", "30000")
    with pair(*options) as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open_group(HYBRID, model=MODEL), here.open_group(HYBRID, model=MODEL)
        keys = boundary_keys(theirs, MAX_KEYS // 5 * 2 + 10)
        put_boundaries(theirs, keys)
        if wait:
            assert ours.fetch(keys, within=30).reason == ""
        else:
            ours.prefetch(keys)
        until(lambda: ours.lookup(keys) == MAX_KEYS // 5 * 2 + 10, "the boundaries are here")
        assert verified_boundary(ours, keys) == MAX_KEYS // 5 * 2 + 10


TWIN = attention("twin", dtype="bfloat16")
"""As many bytes a page as ATTENTION, for an impostor that has both."""


def _keys_of(descriptor: Descriptor, count: int) -> list[bytes]:
    root = contract.chain_root(descriptor.digest, MODEL, TENANT, "")
    return contract.page_keys(root, [0] * 4 * count, 4)


def _open(me: Impostor, request: p.Open) -> list[p.AnyMessage]:
    kind = next(each for each in (ATTENTION, TWIN) if each.digest == request.digest)
    return [p.Opened(request.id, 3 if kind is ATTENTION else 4, contract.encode(kind))]


def _lying(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    told = impostor.remote_pages(me, request.keys)
    if request.arena == 4:
        told[-1] = msgspec.structs.replace(told[-1], checksum=bytes(8))
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, told)]


def _lacking(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    told = impostor.remote_pages(me, request.keys)
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, told[: 4 - request.arena])]


def _honest(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    return impostor.HONEST[p.Pin](me, request)  # type: ignore[return-value]  # it never hangs up


LIES: dict[str, tuple[Answer, int]] = {
    "none": (_honest, 1),
    "a wrong checksum": (_lying, 0),
    "a page that is not there": (_lacking, 0),
    "an end": (impostor.hang_up, 0),
}
BLAMED = "a wrong checksum", "an end"
"""What counts against the peer. A page that it has no more may have been evicted since it said that it had it."""


@pytest.mark.parametrize("lie", LIES)
def test_half_a_boundary_is_none(lie: str) -> None:
    pin, boundaries = LIES[lie]
    keys = [_keys_of(ATTENTION, 1), _keys_of(TWIN, 1)]
    with Impostor(ATTENTION, keys[0] + keys[1], {p.Open: _open, p.Pin: pin}) as other:
        host = Host(*SEGMENTS, peers=[other.address])
        with running(host), host.client() as client:
            until(
                lambda: any(each.state == "connected" for each in client.peers().peers),
                "the impostor is connected",
            )
            group = client.open_group((ATTENTION, TWIN), model=MODEL)
            came = group.fetch(keys, within=2.0)
            assert (came.pages, came.reason == "") == (2 * boundaries, bool(boundaries))
            known = peer(client, other.address)
            assert known is not None
            assert bool(known.failures) == (lie in BLAMED)
            assert [cache.lookup(own) for cache, own in zip(group.caches, keys, strict=True)] == [
                boundaries
            ] * 2
            until(lambda: all(not arena.writing for arena in client.stats().arenas), "the slots came back")
            assert put_boundaries(group, keys) == 1 - boundaries
