"""From a declaration to numbers in another process: declaration, descriptor, arena, page, and back."""

from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import nexuskv
from nexuskv.contract import MhaKv, slot_bytes
from nexuskv.contract.storage import Profile, arena_bytes, candidates, describe, from_json, to_json
from nexuskv.quant import int8
from tests.contract.storage.documents import (
    INT8,
    f16_profile,
    family,
    int8_profile,
    plain_profile,
    read_family,
    read_profile,
)
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import keys

PAGES = 5
LAYERS = 3
TENSORS = ("key", "value")


def descriptor(declared: bytes) -> MhaKv:
    """What every engine that reads the same declaration arrives at."""
    return describe(from_json(declared, Profile), "declared-page16", page_tokens=16, engine_family="VLLM")


def state(position: int, tensor: str) -> npt.NDArray[np.float32]:
    """Keys or values of one page, as the model would have computed them; one head of zeros among them."""
    noise = np.random.default_rng([position, TENSORS.index(tensor)])
    x = noise.normal(size=(LAYERS, 16, 4, 8), scale=noise.uniform(0.01, 100)).astype(np.float32)
    x[:, :, 2] = 0
    return x


def write(pipe: Connection, address: str, declared: bytes) -> None:
    """An engine that quantises what it computed, straight into the pages."""
    with nexuskv.connect(address) as client:
        cache = client.open(descriptor(declared), model="m")
        wanted = keys(cache, PAGES)
        with cache.reserve(wanted) as pages:
            for page in pages:
                for tensor in TENSORS:
                    payload, scales = int8.quantize(state(page.position, tensor))
                    page[tensor][...] = payload
                    page[f"{tensor}_scale"][...] = scales
        pipe.send(wanted)


def write_plain(pipe: Connection, address: str, declared: bytes) -> None:
    """An engine that stores F16."""
    with nexuskv.connect(address) as client:
        cache = client.open(descriptor(declared), model="m")
        wanted = keys(cache, PAGES)
        with cache.reserve(wanted) as pages:
            for page in pages:
                for tensor in TENSORS:
                    page[tensor][...] = state(page.position, tensor).astype(np.float16)
        pipe.send(wanted)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running() as daemon:
        yield daemon


def read(page: Any, tensor: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The numbers that stand in a quantised tensor, exactly, and how far each may be off: half a scale."""
    payload, scales = page[tensor], page[f"{tensor}_scale"][..., None].astype(np.float64)
    back = int8.dequantize(payload, page[f"{tensor}_scale"])
    assert (back == (payload * scales).astype(np.float32)).all()
    return payload * scales, scales / 2


def test_int8_state_comes_back_within_half_a_scale(daemon: Daemon) -> None:
    found = read_family(family(plain_profile(), f16_profile(LAYERS), int8_profile(LAYERS)))
    (chosen,) = candidates(found, INT8)
    declared = to_json(chosen)
    with processes.running(write, daemon.address, declared) as writer, daemon.client() as client:
        wanted = writer.receive()
        cache = client.open(descriptor(declared), model="m")
        assert keys(cache, PAGES) == wanted
        with cache.match(wanted) as hit:
            assert len(hit) == PAGES
            for page in hit:
                for tensor in TENSORS:
                    x = state(page.position, tensor)
                    back, bound = read(page, tensor)
                    assert (np.abs(x - back) <= bound).all()
                    assert not back[:, :, 2].any()
                    assert not page[f"{tensor}_scale"][:, :, 2].any()
        (arena,) = client.stats().arenas
        assert (arena.descriptor_id, arena.resident) == ("declared-page16", PAGES)
        assert arena.page_bytes == LAYERS * 16 * (64 + 32)


def test_f16_state_comes_back_as_it_was(daemon: Daemon) -> None:
    declared = to_json(read_profile(f16_profile(LAYERS)))
    with processes.running(write_plain, daemon.address, declared) as writer, daemon.client() as client:
        wanted = writer.receive()
        with client.open(descriptor(declared), model="m").match(wanted) as hit:
            assert len(hit) == PAGES
            for page in hit:
                for tensor in TENSORS:
                    assert np.array_equal(page[tensor], state(page.position, tensor).astype(np.float16))


def test_the_two_formats_never_find_each_others_pages(daemon: Daemon) -> None:
    f16, small = (describe(read_profile(each(LAYERS)), each.__name__, page_tokens=16, engine_family="VLLM")
                  for each in (f16_profile, int8_profile))  # fmt: skip
    with daemon.client() as client:
        one, other = client.open(f16, model="m"), client.open(small, model="m")
        assert not set(keys(one, PAGES)) & set(keys(other, PAGES))


def test_the_longest_sequence_fits_the_arena_it_was_declared_with() -> None:
    profile = read_profile(int8_profile(LAYERS))
    d = describe(profile, "d", page_tokens=16, engine_family="VLLM")
    nbytes = arena_bytes(d, profile)
    assert nbytes == 4096 // 16 * slot_bytes(d.page_bytes)
    with (
        running("--segment-bytes", "1MiB", memory=str(-(-nbytes // (1 << 20)) << 20)) as daemon,
        daemon.client() as client,
    ):
        cache = client.open(d, model="m")
        longest = keys(cache, 4096 // 16)
        with cache.reserve(longest) as pages:
            assert len(pages) == len(longest)
        assert cache.lookup(longest) == len(longest)
