"""Blocks of sparse pages are pulled on demand: those that the selector named, and no byte of the others."""

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

import nexuskv
from nexuskv import contract
from nexuskv.client.blocks import Numbers
from nexuskv.contract import Descriptor
from nexuskv.contract.blocks import blocks_of
from nexuskv_daemon.peers import messages as p
from tests.support import impostor, pages
from tests.support.hosts import MODEL, TENANT, Host, pair, peer, running
from tests.support.impostor import Answer, Impostor
from tests.support.processes import running as child
from tests.support.waiting import until

LAYERS, TOP_K, CHAIN = 2, 8, 4
DSA = nexuskv.dsa(
    "dsa", layers=LAYERS, top_k=TOP_K, block_tokens=16, kv_heads=1, head_dim=256, index_dim=32, dtype="float16",
    engine_family="VLLM",
)  # fmt: skip
QUANTISED = nexuskv.dsa(
    "dsa-fp8", layers=LAYERS, top_k=TOP_K, block_tokens=3, kv_heads=5, head_dim=6, index_dim=32,
    dtype="float8_e4m3fn", quantization="fp8_e4m3", arrangement="interleaved", engine_family="VLLM",
)  # fmt: skip
NSA = nexuskv.nsa(
    "nsa", page_tokens=128, block_tokens=16, kv_heads=2, head_dim=64, dtype="float32", engine_family="VLLM"
)
BLOCK = blocks_of(DSA).descriptor.page_bytes


def numbers(page: int, layer: int) -> npt.NDArray[np.int32]:
    """Which blocks of the sequence page `page` holds in a layer: not in order, and each layer has others."""
    return np.asarray([page * 100 + (7 * (each + layer)) % TOP_K for each in range(TOP_K)], np.int32)


def store(cache: nexuskv.Cache) -> list[bytes]:
    """A chain of which no two blocks are the same."""
    keys = pages.keys(cache, CHAIN)
    with cache.reserve(keys) as reserved:
        for page in reserved:
            page.buffer[...] = np.random.default_rng(page.position).integers(
                0, 256, page.buffer.nbytes, np.uint8
            )
            if cache.descriptor.semantic_type == "DSA_SPARSE":
                page["selector"][:] = [numbers(page.position, layer) for layer in range(LAYERS)]
    return keys


def in_place(cache: nexuskv.Cache, keys: list[bytes], page: int, number: int, layer: int | None) -> bytes:
    """A block as whoever has the page reads it."""
    with cache.match(keys) as hit:
        return hit[page].blocks([number], layer=layer)[0].tobytes()


def moved(client: nexuskv.Client, other: Host) -> int:
    found = peer(client, other.address)
    assert found is not None
    return found.bytes_in


def test_only_the_selected_blocks_move() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(DSA, model=MODEL), here.open(DSA, model=MODEL)
        keys = store(theirs)
        wanted: dict[bytes, Numbers] = {
            keys[0]: [3],
            keys[2]: [205, 201],
            keys[3]: np.asarray([300], np.int32),
        }
        with ours.blocks(wanted, layer=1, fetch=True) as found:
            assert found.reason == ""
            assert found.fetched[:3] == (4, 4 * BLOCK, first.address)
            expected = [(0, 3), (2, 205), (2, 201), (3, 300)]
            assert [each.tobytes() for each in found] == [in_place(theirs, keys, *at, 1) for at in expected]
            assert [each.shape for each in found] == [(16, 1, 256)] * 4
            assert not any(each.flags.writeable for each in found)
        assert moved(here, first) == 4 * BLOCK
        assert ours.lookup(keys) == 0  # a block is no page


def test_what_was_pulled_stays_like_any_page() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(DSA, model=MODEL), here.open(DSA, model=MODEL)
        keys = store(theirs)
        first_block = in_place(theirs, keys, 1, 104, 0)
        for wanted, blocks in (([104, 107], 2), ([107, 104], 2), ([104, 105], 3), ([105], 3)):
            with ours.blocks({keys[1]: wanted}, layer=0, fetch=True) as found:
                assert len(found) == len(wanted)
            assert moved(here, first) == blocks * BLOCK
        first.daemon.stop()
        with ours.blocks({keys[1]: [104]}, layer=0) as found:
            assert found[0].tobytes() == first_block
            evicted = here.evict(blocks_of(DSA).descriptor.descriptor_id, everything=True)
            assert (evicted.pages, evicted.retiring) == (2, 1)
            assert found[0].tobytes() == first_block  # it is pinned
        with ours.blocks({keys[1]: [105]}, layer=0) as found:
            assert len(found) == 0
            assert "fetch=True" in found.reason


def test_a_killed_daemon_leaves_the_blocks_to_the_next_one() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(DSA, model=MODEL), here.open(DSA, model=MODEL)
        keys = store(theirs)
        with ours.blocks({keys[1]: [104, 107]}, layer=0, fetch=True) as found:
            expected = [each.tobytes() for each in found]
        first.daemon.stop()
        second.daemon.stop(signal.SIGKILL)
        second.daemon.restart()
        with ours.blocks({keys[1]: [104, 107]}, layer=0) as found:
            assert [each.tobytes() for each in found] == expected


def test_pages_that_are_here_are_read_in_place() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(DSA, model=MODEL), here.open(DSA, model=MODEL)
        keys = store(theirs)
        assert ours.fetch(keys[:2]).pages == 2
        before = moved(here, first)
        with (
            ours.blocks({keys[0]: [3], keys[1]: [100]}, layer=0, fetch=True) as found,
            ours.match(keys) as hit,
        ):
            assert np.shares_memory(found[0], hit[0]["blocks"])
            assert np.shares_memory(found[1], hit[1]["blocks"])
        assert moved(here, first) == before
        with ours.blocks({keys[1]: [100], keys[2]: [200]}, layer=0, fetch=True) as found:
            assert [each.tobytes() for each in found] == [
                in_place(theirs, keys, 1, 100, 0), in_place(theirs, keys, 2, 200, 0)
            ]  # fmt: skip
        assert moved(here, first) == before + BLOCK
        with pytest.raises(nexuskv.BadRequest, match="no block 5000"):
            ours.blocks({keys[0]: [5000]}, layer=0, fetch=True)


def test_scales_come_with_their_blocks() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(QUANTISED, model=MODEL), here.open(QUANTISED, model=MODEL)
        keys = store(theirs)
        with ours.blocks({keys[1]: [102, 107]}, layer=1, fetch=True) as found, theirs.match(keys) as hit:
            assert found.fetched.bytes == 2 * blocks_of(QUANTISED).descriptor.page_bytes
            for number, block, scale in zip((102, 107), found, found.scales, strict=True):
                place = list(numbers(1, 1)).index(number)
                assert block.tobytes() == hit[1]["blocks"][1, place].tobytes()
                assert scale.tobytes() == hit[1]["blocks_scale"][1, place].tobytes()
        with theirs.blocks({keys[1]: [102, 107]}, layer=1) as there_found:
            assert [each.shape for each in there_found.scales] == [(5,)] * 2


def test_blocks_without_a_selector() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(NSA, model=MODEL), here.open(NSA, model=MODEL)
        keys = store(theirs)
        with ours.blocks({keys[2]: [5, 0]}, fetch=True) as found, theirs.match(keys) as hit:
            assert found.fetched.bytes == 2 * 16 * 2 * 64 * 4
            assert found[0].tobytes() == hit[2]["selected"][5].tobytes()
            assert found[1].tobytes() == hit[2]["selected"][0].tobytes()
            assert found.scales == []


def test_less_than_all_is_a_miss() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(DSA, model=MODEL), here.open(DSA, model=MODEL)
        keys = store(theirs)
        with ours.blocks({keys[0]: [3, 999]}, layer=0, fetch=True) as found:
            assert len(found) == 0
            assert "not all of these blocks" in found.reason
        with ours.blocks({keys[0]: [3], bytes(32): [3]}, layer=0, fetch=True) as found:
            assert len(found) == 0
            assert found.reason
        known = peer(here, first.address)
        assert known is not None
        assert known.failures == 0  # it is not to blame
        with ours.blocks({}, layer=0, fetch=True) as found:
            assert (len(found), found.reason) == (0, "")


def test_what_are_no_blocks() -> None:
    with running(alone := Host()), alone.client() as client:
        plain, sparse = client.open(pages.small(), model=MODEL), client.open(DSA, model=MODEL)
        with pytest.raises(nexuskv.BadRequest, match="no blocks"):
            plain.blocks({bytes(32): [0]})
        with pytest.raises(nexuskv.BadRequest, match="layer"):
            sparse.blocks({bytes(32): [0]})
        with pytest.raises(nexuskv.BadRequest, match="64 bits"):
            sparse.blocks({bytes(32): [1 << 63]}, layer=0)
        with pytest.raises(nexuskv.BadRequest, match="32"):
            sparse.blocks({b"short": [0]}, layer=0)
        with sparse.blocks({bytes(32): [0]}, layer=0, fetch=True) as found:
            assert "no peer" in found.reason
        with sparse.blocks({store(sparse)[0]: [3]}, layer=0) as found:
            assert len(found) == 1
        with pytest.raises(nexuskv.Closed):
            found[0]


def _rank(pipe: Connection, address: str, keys: list[bytes], wanted: list[int]) -> None:
    with nexuskv.connect(address) as client:
        cache = client.open(DSA, model=MODEL)
        with cache.blocks({keys[1]: wanted}, layer=0, fetch=True) as found:
            pipe.send((found.reason, [each.tobytes() for each in found]))
            pipe.recv()


def test_engines_that_want_the_same_blocks_share_their_pull() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs = there.open(DSA, model=MODEL)
        keys = store(theirs)
        address, sets = second.daemon.address, ([100, 101, 102, 103], [103, 102, 104, 105])
        with child(_rank, address, keys, sets[0]) as one, child(_rank, address, keys, sets[1]) as two:
            for rank, wanted in zip((one, two), sets, strict=True):
                expected = [in_place(theirs, keys, 1, number, 0) for number in wanted]
                assert rank.receive() == ("", expected)
        assert moved(here, first) == 6 * BLOCK


def chain(descriptor: Descriptor) -> list[bytes]:
    root = contract.chain_root(descriptor.digest, MODEL, TENANT, "")
    return contract.page_keys(root, [0] * CHAIN * descriptor.page_tokens, descriptor.page_tokens)


def _changed(me: Impostor, request: p.PinBlocks, **fields: object) -> list[p.AnyMessage]:
    """An honest answer, but for these fields of each block."""
    regions, pinned = impostor.pin_blocks(me, request)
    assert isinstance(pinned, p.PinnedBlocks)
    told = [msgspec.structs.replace(block, **fields) for block in pinned.blocks]
    return [regions, p.PinnedBlocks(request.id, told)]


def _twice(me: Impostor, request: p.PinBlocks) -> list[p.AnyMessage]:
    regions, pinned = impostor.pin_blocks(me, request)
    assert isinstance(pinned, p.PinnedBlocks)
    return [regions, p.PinnedBlocks(request.id, [*pinned.blocks, *pinned.blocks])]


LIES: dict[str, Answer] = {
    "a wrong checksum": lambda me, request: _changed(me, request, checksum=bytes(8)),
    "other bytes than it summed": lambda me, request: _changed(me, request, offset=8),
    "a place beyond the page": lambda me, request: _changed(me, request, place=TOP_K),
    "a page outside its region": lambda me, request: _changed(me, request, offset=me.memory.nbytes),
    "a region it did not tell of": lambda me, request: _changed(me, request, region=99),
    "more blocks than asked for": _twice,
    "fewer blocks than it has": lambda _, request: [p.PinnedBlocks(request.id, [])],
    "whole pages": lambda _, request: [p.Pinned(request.id, 0, [])],
    "nothing at all": impostor.nothing,
    "an end": impostor.hang_up,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_blocks_is_a_miss(host: Callable[[Impostor], Host], lie: str) -> None:
    keys = chain(NSA)
    with Impostor(NSA, keys, {p.PinBlocks: LIES[lie]}) as other, host(other).client() as client:
        until(lambda: _state(client, other) == "connected", "the impostor is connected")
        ours = client.open(NSA, model=MODEL)
        with ours.blocks({keys[1]: [6, 2]}, fetch=True, within=1.0) as found:
            assert len(found) == 0
            assert found.reason
        until(lambda: all(not arena.writing for arena in client.stats().arenas), "the slots came back")
        with ours.blocks({keys[1]: [6, 2]}) as found:
            assert len(found) == 0  # nothing bad was kept


def _state(client: nexuskv.Client, other: Impostor) -> str:
    found = peer(client, other.address)
    return "" if found is None else found.state


def test_the_impostor_is_good_enough_to_be_believed(host: Callable[[Impostor], Host]) -> None:
    keys = chain(NSA)
    with Impostor(NSA, keys) as other, host(other).client() as client:
        until(lambda: _state(client, other) == "connected", "the impostor is connected")
        with client.open(NSA, model=MODEL).blocks({keys[1]: [6, 2]}, fetch=True) as found:
            page = pages.content(keys[1], NSA.page_bytes)
            selected = next(each for each in NSA.page_layout.tensors if each.name == "selected").view(page)
            assert [each.tobytes() for each in found] == [selected[6].tobytes(), selected[2].tobytes()]
