"""One engine process writes, another reads: the same bytes, in place, read-only, also without the daemon."""

import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest

import nexuskv
from nexuskv.contract import Descriptor
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, put, small, verified

PAGES = 40
KINDS: dict[str, Descriptor] = {
    "mha": small("mha", kib=64, page_tokens=16),
    "mla": nexuskv.mla("mla", layers=3, dtype="bfloat16", engine_family="SGLANG"),
    "fp8": nexuskv.mla(
        "fp8",
        layers=2,
        dtype="float8_e4m3fn",
        quantization="fp8_e4m3",
        rope_dtype="bfloat16",
        engine_family="VLLM",
    ),
    "hnd": nexuskv.mha(
        "hnd", layers=2, kv_heads=2, head_dim=8, dtype="float32", dimension_order="HND", engine_family="VLLM"
    ),
}


def write(pipe: Connection, address: str, kind: str) -> None:
    """An engine that writes random tensors, tells what it wrote, and stays until it is told to go."""
    noise = np.random.default_rng(7)
    with nexuskv.connect(address) as client:
        cache = client.open(KINDS[kind], model="m")
        wanted = keys(cache, PAGES)
        told: list[dict[str, bytes]] = []
        with cache.reserve(wanted) as pages:
            for page in pages:
                written: dict[str, bytes] = {}
                for place in cache.descriptor.page_layout.tensors:
                    raw = noise.integers(0, 256, place.nbytes, np.uint8)
                    page[place.name][...] = raw.view(place.dtype).reshape(place.shape)
                    written[place.name] = raw.tobytes()
                told.append(written)
        pipe.send((wanted, told))
        pipe.recv()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="64MiB") as daemon:
        yield daemon


@pytest.mark.parametrize("kind", KINDS)
def test_what_one_writes_another_reads_byte_by_byte(daemon: Daemon, kind: str) -> None:
    with processes.running(write, daemon.address, kind) as writer, daemon.client() as client:
        wanted, told = writer.receive()
        cache = client.open(KINDS[kind], model="m")
        assert keys(cache, PAGES) == wanted
        with cache.match(wanted) as hit:
            assert len(hit) == PAGES
            assert hit.tokens == PAGES * cache.descriptor.page_tokens
            for page, written in zip(hit, told, strict=True):
                assert {name: page[name].tobytes() for name in written} == written


def test_pages_outlive_their_writer(daemon: Daemon) -> None:
    with processes.running(write, daemon.address, "mha") as writer:
        wanted, _ = writer.receive()
        writer.kill()
    with daemon.client() as client:
        assert client.open(KINDS["mha"], model="m").lookup(wanted) == PAGES


def test_a_readers_views_cannot_be_written(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(KINDS["mha"], model="m")
        put(cache, keys(cache, 2))
        with cache.match(keys(cache, 2)) as hit:
            for array in (hit[0]["key"], hit[0].buffer):
                assert not array.flags.writeable
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 1
                with pytest.raises(ValueError, match="WRITEABLE"):
                    array.flags.writeable = True


def test_a_hit_copies_nothing(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(KINDS["mha"], model="m")
        put(cache, keys(cache, 2))
        with cache.match(keys(cache, 2)) as first, cache.match(keys(cache, 2)) as second:
            assert np.shares_memory(first[1]["key"], second[1]["key"])
            assert not np.shares_memory(first[0].buffer, first[1].buffer)
            assert first.handles == second.handles


def test_pages_are_counted_from_either_end(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(KINDS["mha"], model="m")
        put(cache, keys(cache, 3))
        with cache.match(keys(cache, 3)) as hit:
            assert [hit[at].position for at in range(-3, 3)] == [0, 1, 2, 0, 1, 2]
            for outside in (-7, -4, 3):
                with pytest.raises(IndexError):
                    hit[outside]


def test_a_closed_hit_raises(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(KINDS["mha"], model="m")
        put(cache, keys(cache, 2))
        hit = cache.match(keys(cache, 2))
        page = hit[0]
        hit.close()
        hit.close()

        for use in (lambda: hit[0], lambda: page["key"], lambda: page.buffer, lambda: hit.handles):
            with pytest.raises(nexuskv.Closed, match="match again"):
                use()


def test_a_finished_reservation_raises(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(KINDS["mha"], model="m")
        with cache.reserve(keys(cache, 2)) as pages:
            pages[0].commit()
            for use in (lambda: pages[0]["key"], lambda: pages[0].buffer, pages[0].commit):
                with pytest.raises(nexuskv.Closed, match="not yours to write any more"):
                    use()
            pages[1]["key"][...] = 1
        with pytest.raises(nexuskv.Closed):
            pages[1]["key"][...] = 2

        assert cache.lookup(keys(cache, 2)) == 2


def test_an_exception_while_writing_aborts(daemon: Daemon) -> None:
    class Mishap(Exception):
        pass

    def write_badly(cache: nexuskv.Cache) -> None:
        with cache.reserve(keys(cache, 3)) as pages:
            pages[0].commit()
            raise Mishap

    with daemon.client() as client:
        cache = client.open(KINDS["mha"], model="m")
        with pytest.raises(Mishap):
            write_badly(cache)

        assert cache.lookup(keys(cache, 3)) == 1
        assert client.stats().arenas[0].writing == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_hit_stays_readable_when_the_daemon_is_gone(daemon: Daemon, number: int) -> None:
    with processes.running(write, daemon.address, "mha") as writer, daemon.client() as client:
        wanted, told = writer.receive()
        with client.open(KINDS["mha"], model="m").match(wanted) as hit:
            daemon.stop(number)

            for page, written in zip(hit, told, strict=True):
                assert page["key"].tobytes() == written["key"]


def test_a_client_goes_on_with_the_next_daemon(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(KINDS["mha"], model="m")
        put(cache, keys(cache, 3))
        epoch = client.boot_epoch
        daemon.stop(signal.SIGKILL)
        assert verified(cache, keys(cache, 3)) == 3
        with pytest.raises(nexuskv.Disconnected, match="start nexuskvd"):
            cache.reserve(keys(cache, 4))
        daemon.restart()

        assert put(cache, keys(cache, 4)) == 1
        assert verified(cache, keys(cache, 4)) == 4
        assert client.boot_epoch != epoch
