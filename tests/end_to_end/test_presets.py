"""Every preset through the running daemon: one engine process stores its state, another reads it in place.

And across engines: what one family stored, another one finds, if their physical contracts are equal.
"""

from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest

import nexuskv
from nexuskv.contract import PRESETS, AnyDescriptor, LastCheckpoint, Verdict, compatible
from nexuskv.harness.residence import Witness
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.presets import scaled

PAGES = 3
MODEL = "a-model@1"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="64MiB") as daemon:
        yield daemon


def keys(cache: nexuskv.Cache) -> list[bytes]:
    if cache.descriptor.content_keyed:
        return cache.content_keys(b"the same image", PAGES)
    return cache.keys(range(PAGES * cache.descriptor.page_tokens))


def write(pipe: Connection, address: str, name: str) -> None:
    """An engine that writes random numbers into every tensor, tells what it wrote, and stays until told to go."""
    noise = np.random.default_rng(11)
    with nexuskv.connect(address) as client:
        cache = client.open(scaled(name), model=MODEL)
        told: list[dict[str, bytes]] = []
        with cache.reserve(keys(cache)) as pages:
            for page in pages:
                written: dict[str, bytes] = {}
                for place in cache.descriptor.page_layout.tensors:
                    raw = noise.integers(0, 256, place.nbytes, np.uint8)
                    page[place.name][...] = raw.view(place.dtype).reshape(place.shape)
                    written[place.name] = raw.tobytes()
                told.append(written)
        pipe.send((keys(cache), told))
        pipe.recv()


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_read_in_place_byte_by_byte(daemon: Daemon, name: str) -> None:
    witness = Witness(daemon.instance)
    with processes.running(write, daemon.address, name) as writer, daemon.client() as client:
        wanted, told = writer.receive()
        cache = client.open(scaled(name), model=MODEL)
        assert keys(cache) == wanted
        with cache.match(wanted) as hit:
            assert hit.stop == PAGES
            assert len(hit) == (1 if isinstance(cache.descriptor.reuse, LastCheckpoint) else PAGES)
            for page in hit:
                assert {tensor: page[tensor].tobytes() for tensor in told[page.position]} == told[
                    page.position
                ]
                assert all(witness.in_place(page[tensor]) for tensor in told[page.position])


def of_family(family: str, dtype: str = "bfloat16") -> AnyDescriptor:
    """What an engine would register: an id and a family of its own."""
    return nexuskv.mha(
        f"llama-{family.lower()}-{dtype}", layers=2, kv_heads=8, head_dim=64, dtype=dtype, engine_family=family,
        granularity="BLOCK" if family == "SGLANG" else "PAGE",
    )  # fmt: skip


def serve(pipe: Connection, address: str, family: str, dtype: str) -> None:
    """An engine of that family: looks for a prompt's pages, computes the absent ones; tells both, and a checksum."""
    with nexuskv.connect(address) as client:
        cache = client.open(of_family(family, dtype), model=MODEL)
        wanted = keys(cache)
        with cache.match(wanted) as hit:
            found, total = len(hit), sum(int(page.buffer.sum(dtype=np.uint64)) for page in hit)
        with cache.reserve(wanted) as pages:
            for page in pages:
                page.buffer[...] = page.position + 1
        pipe.send((found, len(pages), total))
        pipe.recv()


def served(daemon: Daemon, family: str, dtype: str = "bfloat16") -> tuple[int, int, int]:
    with processes.running(serve, daemon.address, family, dtype) as engine:
        answer: tuple[int, int, int] = engine.receive()
        return answer


def test_what_vllm_stores_sglang_hits(daemon: Daemon) -> None:
    vllm, sglang = of_family("VLLM"), of_family("SGLANG")
    assert compatible(vllm, sglang, producer_model=MODEL, consumer_model=MODEL).verdict is Verdict.EXACT
    assert served(daemon, "VLLM") == (0, PAGES, 0)
    assert served(daemon, "SGLANG") == (PAGES, 0, (1 + 2 + 3) * vllm.page_bytes)
    with daemon.client() as client:
        assert len(client.stats().arenas) == 1


def test_engines_whose_contracts_differ_share_nothing(daemon: Daemon) -> None:
    found = compatible(of_family("VLLM"), of_family("SGLANG", "float16"))
    assert found.verdict is Verdict.CONVERTIBLE
    assert {reason.field for reason in found.reasons} == {"KEY.dtype", "VALUE.dtype"}
    assert served(daemon, "VLLM") == (0, PAGES, 0)
    assert served(daemon, "SGLANG", "float16") == (0, PAGES, 0)
