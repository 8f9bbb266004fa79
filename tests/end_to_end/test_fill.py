"""Filling pages by one call: the same bytes as by assignment, and nothing written that does not fit."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import nexuskv
from nexuskv.contract import Descriptor
from tests.support.daemon import Daemon, running
from tests.support.pages import content, keys, put, small, verified

CHAIN = 24
SIZES = {"4 KiB": small(kib=4), "64 KiB": small("big", kib=64)}
"""On both sides of the size from which pages go past the CPU's caches."""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "512KiB", memory="4MiB") as daemon:
        yield daemon


@pytest.fixture(params=list(SIZES.values()), ids=list(SIZES))
def cache(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[nexuskv.Cache]:
    descriptor: Descriptor = request.param
    with daemon.client() as client:
        yield client.open(descriptor, model="m")


def contents(cache: nexuskv.Cache, wanted: list[bytes]) -> npt.NDArray[np.uint8]:
    return np.stack([content(key, cache.descriptor.page_bytes) for key in wanted])


def test_an_array_of_pages(cache: nexuskv.Cache) -> None:
    wanted = keys(cache, CHAIN)
    with cache.reserve(wanted) as pages:
        pages.fill(contents(cache, wanted))
    assert verified(cache, wanted) == CHAIN


def test_pages_in_several_segments(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(SIZES["64 KiB"], model="m")
        wanted = keys(cache, CHAIN)
        with cache.reserve(wanted) as pages:
            pages.fill(contents(cache, wanted))
        with cache.match(wanted) as hit:
            assert len({handle.segment for handle in hit.handles}) > 1
        assert verified(cache, wanted) == CHAIN


def test_buffers_of_all_kinds(cache: nexuskv.Cache) -> None:
    wanted = keys(cache, CHAIN)
    rows = contents(cache, wanted)
    sources = [row.view(ml_dtypes.bfloat16) if at % 2 else bytearray(row) for at, row in enumerate(rows)]
    with cache.reserve(wanted) as pages:
        pages.fill(sources)
    assert verified(cache, wanted) == CHAIN


def test_sources_are_those_of_the_keys_that_were_asked_for(cache: nexuskv.Cache) -> None:
    wanted = keys(cache, CHAIN)
    put(cache, wanted[:10])
    sources: list[bytes] = [b"resident: not looked at"] * 10 + [
        bytes(row) for row in contents(cache, wanted[10:])
    ]
    with cache.reserve(wanted) as pages:
        assert len(pages) == CHAIN - 10
        pages.fill(sources)
    assert verified(cache, wanted) == CHAIN


def test_page_by_page(cache: nexuskv.Cache) -> None:
    wanted = keys(cache, CHAIN)
    with cache.reserve(wanted) as pages:
        for page in pages:
            page.fill(content(page.key, cache.descriptor.page_bytes))
            page.commit()
            with pytest.raises(nexuskv.Closed, match="not yours to write"):
                page.fill(content(page.key, cache.descriptor.page_bytes))
        with pytest.raises(nexuskv.Closed):
            pages.fill(contents(cache, wanted))
    assert verified(cache, wanted) == CHAIN


def test_what_does_not_fit_writes_nothing(cache: nexuskv.Cache) -> None:
    wanted = keys(cache, CHAIN)
    right = contents(cache, wanted)
    with cache.reserve(wanted) as pages:
        for page in pages:
            page.buffer[...] = 7
        wrong: list[object] = [
            right[:-1],
            right[:, :-1],
            right[:, ::-1],
            [*right[:-1], right[-1][:-1]],
            [right[0][:-1], *right[1:]],  # whichever segment is written first
            [*right[:-1], "text"],
            [],
            7,
        ]
        for sources in wrong:
            with pytest.raises(nexuskv.BadRequest, match="C-contiguous"):
                pages.fill(sources)  # type: ignore[arg-type] # what no checker lets through
        assert all((page.buffer == 7).all() for page in pages)
        pages.fill(right)
    assert verified(cache, wanted) == CHAIN
    assert put(cache, keys(cache, 2, branch=1)) == 2


def test_a_reservation_that_ended(cache: nexuskv.Cache) -> None:
    wanted = keys(cache, CHAIN)
    pages = cache.reserve(wanted)
    pages.abort()
    with pytest.raises(nexuskv.Closed):
        pages.fill(contents(cache, wanted))


def test_pages_whose_length_is_no_multiple_of_a_cache_line(daemon: Daemon) -> None:
    odd = nexuskv.mha(
        "odd", layers=1, kv_heads=1, head_dim=4097, page_tokens=1, dtype="float32", engine_family="VLLM"
    )
    assert odd.page_bytes % 64
    with daemon.client() as client:
        cache = client.open(odd, model="m")
        wanted = keys(cache, 5)
        with cache.reserve(wanted) as pages:
            pages.fill([content(key, odd.page_bytes) for key in wanted])
        assert verified(cache, wanted) == 5
