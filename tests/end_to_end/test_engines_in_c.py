"""Engines in C and C++ beside Python ones: they attach to a real daemon and read in place what Python stored."""

import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import nexuskv
from tests.native.building import COMPILERS, build, build_cpp, run
from tests.native.engine import Engine
from tests.support.daemon import Daemon, running
from tests.support.pages import content, keys, put, small

PAGES = small(kib=4)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("engines")
    made = {name: build(folder, COMPILERS[0], name, "-O2") for name in ("read_page", "converse")}
    return made | {"read_pages": build_cpp(folder, COMPILERS[0], "read_pages", "-O2")}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "64KiB", memory="512KiB") as daemon:
        yield daemon


@pytest.fixture
def chain(daemon: Daemon) -> Iterator[list[bytes]]:
    """Keys of forty resident pages, in three segments."""
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        wanted = keys(cache, 40)
        put(cache, wanted)
        yield wanted


def test_a_c_program_finds_a_page_by_key_and_reads_it_in_place(
    tmp_path: Path, daemon: Daemon, chain: list[bytes], programs: dict[str, Path]
) -> None:
    expected = tmp_path / "page"
    expected.write_bytes(content(chain[17], PAGES.page_bytes).tobytes())

    found = run(programs["read_page"], daemon.address, chain[17].hex(), expected)
    assert found.returncode == 0
    assert f"length {PAGES.page_bytes} tokens {PAGES.page_tokens}\n" in found.stdout
    assert run(programs["read_page"], daemon.address, chain[18].hex(), expected).returncode == 2
    assert run(programs["read_page"], daemon.address, bytes(32).hex(), expected).returncode == 1


def test_a_cpp_program_reads_a_whole_chain(
    daemon: Daemon, chain: list[bytes], programs: dict[str, Path]
) -> None:
    done = run(programs["read_pages"], daemon.address, *(key.hex() for key in [*chain, bytes(32)]))

    sums = [int(content(key, PAGES.page_bytes).sum(dtype="u8")) for key in chain]
    assert done.stdout.splitlines() == [f"{PAGES.page_tokens} {total}" for total in sums]


def page_sum(key: bytes) -> str:
    return str(int(content(key, PAGES.page_bytes).sum(dtype="u8")))


def test_a_c_engine_outlives_its_daemon(
    daemon: Daemon, chain: list[bytes], programs: dict[str, Path]
) -> None:
    with Engine(programs["converse"], daemon.address) as engine:
        assert engine.pin(chain[0]) == "pinned 0"
        daemon.stop(signal.SIGKILL)
        assert engine.pin(chain[1]) == "pinned 1"
        assert engine.pin(chain[39]) == "miss"  # of a segment that it has not mapped yet

        daemon.restart()

        assert engine.pin(chain[39]) == "pinned 2"
        for number, position in enumerate((0, 1, 39)):
            assert engine.ask(f"sum {number}") == page_sum(chain[position])
        assert [engine.ask(f"unpin {number}") for number in range(3)] == ["ok"] * 3


def test_a_c_engine_does_not_take_another_daemons_pages_for_those_of_the_one_before(
    daemon: Daemon, chain: list[bytes], programs: dict[str, Path]
) -> None:
    with Engine(programs["converse"], daemon.address) as engine:
        daemon.stop(signal.SIGKILL)
        other = Daemon("--segment-bytes", "64KiB", memory="512KiB", socket=daemon.socket)
        try:
            other.wait_ready()
            with other.client() as client:
                cache = client.open(PAGES, model="another")
                theirs = keys(cache, 40)
                put(cache, theirs)

                assert engine.pin(chain[0]) == "miss"
                assert engine.pin(theirs[0]) == "pinned 0"
                assert engine.ask("sum 0") == page_sum(theirs[0])
        finally:
            other.stop()
            other.clean_up()


def test_a_c_engine_that_is_turned_away_says_why(daemon: Daemon, programs: dict[str, Path]) -> None:
    _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (daemon.descriptors(), hard))

    for _ in range(20):  # the daemon may hang up before the hello or after it
        done = run(programs["read_page"], daemon.address, bytes(32).hex(), "/dev/null")
        assert done.returncode == 3
        assert re.search("no file descriptor left|maximum number of files open", done.stderr), done.stderr


def test_what_a_c_engine_reads_is_not_evicted_under_it(
    daemon: Daemon, chain: list[bytes], programs: dict[str, Path]
) -> None:
    with Engine(programs["converse"], daemon.address) as engine, daemon.client() as client:
        assert engine.pin(chain[39]) == "pinned 0"
        client.evict()
        cache = client.open(PAGES, model="m")
        for branch in range(1, 12):
            put(cache, keys(cache, 20, branch=branch))

        assert engine.ask("sum 0") == page_sum(chain[39])
        assert engine.ask("unpin 0") == "ok"


def test_a_c_engine_without_a_daemon_says_so(tmp_path: Path, programs: dict[str, Path]) -> None:
    done = run(programs["read_page"], f"unix:{tmp_path}/nobody", bytes(32).hex(), "/dev/null")

    assert (done.returncode, done.stderr) == (3, f"{tmp_path}/nobody: No such file or directory\n")


def test_headers_and_source_are_found_from_python() -> None:
    assert (Path(nexuskv.get_include()) / "nexuskv.h").is_file()
