"""Sparse pages: a reader pulls the blocks that the selector named, and touches no byte of the others."""

import ctypes
import math
import mmap
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import nexuskv
from nexuskv.client.hit import Page
from nexuskv.harness.residence import Witness
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, small

LAYERS, TOP_K, PAGES = 2, 8, 3
PROT_NONE = 0
DSA = nexuskv.dsa(
    "dsa",
    layers=LAYERS,
    top_k=TOP_K,
    block_tokens=16,
    kv_heads=1,
    head_dim=256,  # 8 KiB a block: whole pages of memory
    index_dim=32,
    dtype="float16",
    engine_family="VLLM",
)
NSA = nexuskv.nsa(
    "nsa", page_tokens=64, block_tokens=16, kv_heads=2, head_dim=8, dtype="float32", engine_family="VLLM"
)


def numbers(page: int, layer: int) -> npt.NDArray[np.int32]:
    """Which blocks of the sequence page `page` holds in a layer: not in order, and each layer has others."""
    return np.asarray([page * 100 + (7 * (each + layer)) % TOP_K for each in range(TOP_K)], np.int32)


def value(number: int, layer: int) -> float:
    return number + layer / 2


def store(cache: nexuskv.Cache) -> list[bytes]:
    wanted = keys(cache, PAGES)
    with cache.reserve(wanted) as pages:
        for page in pages:
            for layer in range(LAYERS):
                page["selector"][layer] = numbers(page.position, layer)
                for place, number in enumerate(numbers(page.position, layer)):
                    page["blocks"][layer, place] = value(number, layer)
    return wanted


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="64MiB") as daemon:
        yield daemon


@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_hit_gives_the_blocks_of_those_numbers(daemon: Daemon, layer: int) -> None:
    with daemon.client() as client:
        cache = client.open(DSA, model="m")
        with cache.match(store(cache)) as hit:
            pulled = hit.blocks([205, 3, 101, 3], layer=layer)
            assert [block.shape for block in pulled] == [(16, 1, 256)] * 4
            for block, number in zip(pulled, (205, 3, 101, 3), strict=True):
                assert (block == value(number, layer)).all()
            assert sorted(hit.block_numbers(layer=layer)) == [*range(8), *range(100, 108), *range(200, 208)]
            assert hit.blocks(np.asarray([], np.int32), layer=layer) == []


def test_blocks_are_read_only_views_in_place(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(DSA, model="m")
        with cache.match(store(cache)) as hit:
            witness = Witness(daemon.instance)
            for block in hit.blocks([0, 104], layer=1):
                assert witness.in_place(block)
                assert not block.flags.writeable
            (block,) = hit[2].blocks([203], layer=0)
            assert np.shares_memory(block, hit[2]["blocks"])


def pull(pipe: Connection, address: str, wanted: list[int], looked_at: list[int]) -> None:
    """Reads blocks `looked_at` after all but those `wanted` were made unreadable: touching another one is a SIGSEGV."""
    libc = ctypes.CDLL(None, use_errno=True)
    with nexuskv.connect(address) as client:
        cache = client.open(DSA, model="m")
        with cache.match(keys(cache, PAGES)) as hit:
            forbidden = 0
            for page in hit:
                for place, number in enumerate(page["selector"][0]):
                    if number in wanted:
                        continue
                    for layer in range(LAYERS):
                        block = page["blocks"][layer, place]
                        if layer == 0 or page["selector"][layer, place] not in wanted:
                            start = ctypes.c_void_p(block.__array_interface__["data"][0])
                            assert libc.mprotect(start, ctypes.c_size_t(block.nbytes), PROT_NONE) == 0
                            forbidden += block.nbytes
            pulled = hit.blocks(wanted, layer=0)
            pipe.send((forbidden, [float(block.sum(dtype=np.float64)) for block in pulled]))
            blocks = {number: block for page in hit for number, block in _all_of(page)}
            pipe.send(sum(float(blocks[number].sum(dtype=np.float64)) for number in looked_at))
            pipe.recv()


def _all_of(page: Page) -> Iterator[tuple[int, npt.NDArray[np.float16]]]:
    """Every block by its number, unread."""
    for place, number in enumerate(page["selector"][0]):
        yield int(number), page["blocks"][0, place]


def test_a_pull_touches_no_byte_of_another_block(daemon: Daemon) -> None:
    """The kernel is the witness: every other block is unreadable while these are pulled and read."""
    assert DSA.page_layout.tensors[0].nbytes // (LAYERS * TOP_K) % mmap.PAGESIZE == 0
    wanted = [206, 1, 105]
    with daemon.client() as client:
        store(client.open(DSA, model="m"))
        with processes.running(pull, daemon.address, wanted, wanted) as reader:
            forbidden, sums = reader.receive()
            assert forbidden >= (PAGES * TOP_K - len(wanted)) * 16 * 256 * 2
            assert sums == [value(number, 0) * 16 * 256 for number in wanted]
            reader.receive()


def test_the_witness_would_see_a_touch(daemon: Daemon) -> None:
    with daemon.client() as client:
        store(client.open(DSA, model="m"))
        with processes.running(pull, daemon.address, [1], [2]) as reader:
            reader.receive()
            assert reader.join() == -signal.SIGSEGV


def test_nsa_blocks_are_numbered_by_their_place(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(NSA, model="m")
        wanted = keys(cache, PAGES)
        with cache.reserve(wanted) as pages:
            for page in pages:
                for place in range(4):
                    page["selected"][place] = page.position * 4 + place
        with cache.match(wanted) as hit:
            assert hit.block_numbers() == list(range(12))
            assert [float(block[0, 0, 0]) for block in hit.blocks([11, 0, 6])] == [11, 0, 6]
            assert (hit[1].blocks([5])[0] == 5).all()


def test_what_cannot_be_pulled(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(DSA, model="m")
        with cache.match(store(cache)) as hit:
            with pytest.raises(nexuskv.BadRequest, match="no block 8, 300: block_numbers"):
                hit.blocks([1, 8, 300], layer=0)
            with pytest.raises(nexuskv.BadRequest, match="no block 101"):
                hit[0].blocks([101], layer=0)
            for layer in (None, -1, LAYERS):
                with pytest.raises(nexuskv.BadRequest, match="name one from 0 to 1"):
                    hit.blocks([1], layer=layer)
        with pytest.raises(nexuskv.Closed):
            hit.blocks([1], layer=0)
        nsa = client.open(NSA, model="m")
        with nsa.reserve(keys(nsa, 1)):
            pass
        with nsa.match(keys(nsa, 1)) as hit, pytest.raises(nexuskv.BadRequest, match="leave `layer` out"):
            hit.blocks([0], layer=0)
        plain = client.open(small(), model="m")
        with plain.match(keys(plain, 1)) as hit, pytest.raises(nexuskv.BadRequest, match="have no blocks"):
            hit.blocks([0])


@pytest.mark.parametrize(
    "wanted",
    [[205.7], [math.nan], [2**63], np.asarray([2**64 - 1], np.uint64), "205", None, [True], [[1], [2, 3]]],
    ids=str,
)
def test_what_is_no_block_number_is_not_taken_for_one(daemon: Daemon, wanted: Any) -> None:
    with daemon.client() as client:
        cache = client.open(DSA, model="m")
        stored = store(cache)
        with cache.match(stored) as hit, pytest.raises(nexuskv.BadRequest, match="integers of 64 bits"):
            hit.blocks(wanted, layer=0)
        with pytest.raises(nexuskv.BadRequest, match="integers of 64 bits"):
            cache.blocks({stored[0]: wanted}, layer=0)


def test_a_layer_may_be_an_integer_of_numpy(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(DSA, model="m")
        stored, layer = store(cache), np.arange(LAYERS)[1]
        with cache.blocks({stored[0]: [3]}, layer=layer) as found:
            assert (found[0] == value(3, 1)).all()
        with cache.blocks({keys(cache, 1, branch=1)[0]: [3]}, layer=layer, fetch=True) as found:
            assert "no peers" in found.reason


def test_an_empty_hit_has_no_blocks(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(DSA, model="m")
        with cache.match(keys(cache, 1)) as hit:
            assert hit.block_numbers(layer=0) == []
            with pytest.raises(nexuskv.BadRequest, match="no block 0"):
                hit.blocks([0], layer=0)
