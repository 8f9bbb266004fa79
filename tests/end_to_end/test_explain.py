"""`cache.explain` and `nexuskv explain`: what is really resident, through the ordinary lookup, decides."""

from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import nexuskv
from nexuskv.contract import PRESETS, mamba2, page_keys, to_json
from nexuskv.gain import MATRIX, Decision
from nexuskv.harness.residence import Witness
from tests.end_to_end.test_cli import answer, nexuskv_command
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import intact, keys, put, small

SECONDS_PER_TOKEN = 1e-2
KINDS = {
    kind: min((d for d in PRESETS.values() if d.semantic_type == kind), key=lambda d: d.page_bytes)
    for kind in {d.semantic_type for d in PRESETS.values()}
}
"""Of each kind the preset with the smallest page."""
SNAPSHOT = mamba2(
    "m", heads=4, head_dim=16, state_size=16, dtype="float16", engine_family="VLLM", page_tokens=16
)


def chain(cache: nexuskv.Cache, pages: int) -> list[bytes]:
    """Keys of any kind's pages, also of those that are not named by tokens."""
    return page_keys(cache.root, range(pages * 4), 4)


def write(pipe: Connection, address: str, kind: str) -> None:
    """Another engine that computed two pages."""
    with nexuskv.connect(address) as client:
        cache = client.open(KINDS[kind], model="m")
        pipe.send(put(cache, chain(cache, 2)))


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="256MiB") as daemon:
        yield daemon


@pytest.mark.parametrize("kind", KINDS)
def test_the_local_row_of_a_kind_is_read_in_place(daemon: Daemon, kind: str) -> None:
    with processes.running(write, daemon.address, kind) as writer, daemon.client() as client:
        assert writer.receive() == 2
        cache = client.open(KINDS[kind], model="m")
        cache.gain.declare(SECONDS_PER_TOKEN)
        wanted = chain(cache, 2)
        found = cache.explain(wanted)
        assert (found.decision, found.path) == (Decision.LOCAL_POINTER, "shared_memory")
        with cache.match(wanted) as hit:
            assert hit.tokens == found.boundary_tokens == 2 * cache.descriptor.page_tokens
            assert len(hit) == found.pages
            read = sum(handle.length for handle in hit.handles)
            assert found.nbytes == (0 if MATRIX[kind].moves_nothing else read)
            assert intact(hit)
            witness = Witness(daemon.instance)
            assert all(witness.in_place(page.buffer) for page in hit)


def test_a_snapshot_is_one_handle_whatever_the_context(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(SNAPSHOT, model="m")
        cache.gain.declare(SECONDS_PER_TOKEN)
        wanted = keys(cache, 64)
        put(cache, wanted)
        seen = set()
        for pages in (1, 8, 64):
            found = cache.explain(wanted[:pages])
            with cache.match(wanted[:pages]) as hit:
                assert hit.tokens == found.boundary_tokens == 16 * pages
                (handle,) = hit.handles
            seen.add((found.pages, found.nbytes, handle.length))
        assert seen == {(1, SNAPSHOT.page_bytes, SNAPSHOT.page_bytes)}


def test_residency_is_that_of_the_ordinary_lookup(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(small(), model="m")
        wanted = keys(cache, 10)
        with pytest.raises(nexuskv.CostUnknown):
            cache.explain(wanted)
        cache.gain.observe(tokens=1000, seconds=10.0)
        assert cache.explain(wanted).decision is Decision.RECOMPUTE
        put(cache, wanted[:6])
        found = cache.explain(wanted)
        assert (found.boundary_tokens, found.pages) == (24, 6)
        assert found.compute_seconds == pytest.approx(0.24)
        assert client.stats().tenants[0].hits == 0


def test_reading_that_costs_more_than_computing_is_advised_against(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(small(kib=64), model="m")
        cache.gain.declare(1e-12)
        put(cache, keys(cache, 4))
        found = cache.explain(keys(cache, 4))
        assert (found.decision, found.boundary_tokens) == (Decision.RECOMPUTE, 0)
        assert "T_compute - T_cache" in found.reason


def test_it_goes_on_without_the_daemon(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(small(), model="m")
        cache.gain.declare(SECONDS_PER_TOKEN)
        wanted = keys(cache, 10)
        put(cache, wanted[:6])
        with cache.match(wanted):
            pass
        daemon.process.kill()
        daemon.process.wait()
        found = cache.explain(wanted)
        assert (found.decision, found.boundary_tokens) == (Decision.LOCAL_POINTER, 24)


def test_the_command_explains_a_preset() -> None:
    found = answer(
        "explain", "llama-3-8b-page16", "--tokens", "8200", "--seconds-per-token", "1e-4", "--json"
    )
    assert (found["decision"], found["path"], found["boundary_tokens"]) == (
        "local_pointer",
        "shared_memory",
        8192,
    )
    assert found["nbytes"] == 8192 * 128 * 1024
    assert found["compute_seconds"] == pytest.approx(0.8192)
    assert found["gain"] == "T_compute - T_cache"


def test_the_command_explains_a_file_a_fit_and_peers(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_bytes(to_json(SNAPSHOT))
    found = answer(
        "explain", str(file), "--tokens", "1600", "--resident", "0", "--prefill", "100:1", "--prefill", "1000:10",
        "--peer", "tcp:1e-3:1GiB", "--peer", "rdma:1e-5:10GiB", "--json",
    )  # fmt: skip
    assert (found["decision"], found["path"], found["nbytes"]) == (
        "pull_from_peer",
        "rdma",
        SNAPSHOT.page_bytes,
    )
    assert found["compute_seconds"] == pytest.approx(16)


def test_the_table_ends_with_the_reason() -> None:
    ended = nexuskv_command(
        "explain", "llama-3-8b-page16", "--tokens", "4096", "--seconds-per-token", "1e-12", "--read", "1MiB"
    )
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[-1].startswith("recompute: T_compute - T_cache = ")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 2, "say what computing costs"),
        (("--seconds-per-token", "1", "--prefill", "1:1"), 2, "say what computing costs"),
        (("--seconds-per-token", "-1"), 2, "is no number of seconds"),
        (("--prefill", "many:1"), 2, "is no number of tokens"),
        (("--prefill", "0:1"), 1, "is no prefill"),
        (("--seconds-per-token", "1", "--tokens", str(2**32)), 2, "is no number of tokens up to 4294967295"),
        (("--seconds-per-token", "1", "--peer", "tcp:0:1GiB"), 2, "give measured, positive numbers"),
    ],
)
def test_the_command_says_what_it_needs(arguments: tuple[str, ...], code: int, sentence: str) -> None:
    ended = nexuskv_command("explain", "llama-3-8b-page16", "--tokens", "64", *arguments)
    assert (ended.returncode, sentence in ended.stderr) == (code, True), ended.stderr


def test_the_command_names_the_file_that_is_not_there() -> None:
    ended = nexuskv_command("explain", "no-such", "--tokens", "64", "--seconds-per-token", "1")
    assert ended.returncode == 1
    assert "'no-such' is no preset, and no file" in ended.stderr
