"""Objects that were damaged between two daemons: refused with a sentence, or taken over as far as they are whole."""

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

import nexuskv
from tests.index.conftest import PAGES
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, put, verified

CHAIN = 8
SHM = Path("/dev/shm")


class Remains:
    """What a killed daemon left, to be put back after each test. Kinds are e.g. "index-1"."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._whole = self.snapshot()

    def path(self, kind: str) -> Path:
        return SHM / f"nexuskv-{self.daemon.instance}-{kind}"

    def snapshot(self) -> dict[str, bytes]:
        """Bytes of every object but the lock, which is every daemon's own."""
        names = (name for name in self.daemon.objects() if not name.endswith("-lock"))
        return {name: (SHM / name).read_bytes() for name in names}

    def put_back(self) -> None:
        if self.daemon.process.poll() is None:
            self.daemon.stop(signal.SIGKILL)
        for name in self.daemon.objects():
            (SHM / name).unlink()
        for name, data in self._whole.items():
            (SHM / name).touch(0o600)
            (SHM / name).write_bytes(data)


@pytest.fixture(scope="module")
def left() -> Iterator[Remains]:
    """Three chains in two segments, and their daemon killed."""
    with running("--segment-bytes", "64KiB", memory="256KiB") as daemon:
        with daemon.client() as client:
            cache = client.open(PAGES, model="m")
            for branch in range(3):
                put(cache, keys(cache, CHAIN, branch))
        daemon.stop(signal.SIGKILL)
        yield Remains(daemon)


@pytest.fixture
def remains(left: Remains) -> Iterator[Remains]:
    yield left
    left.put_back()


@pytest.fixture
def daemon(remains: Remains) -> Daemon:
    """The one that was killed."""
    return remains.daemon


def refusal(daemon: Daemon) -> str:
    """What a daemon says that does not start."""
    before = len(daemon.log)
    daemon.start()
    assert daemon.process.wait(timeout=60) == 1
    said = daemon.log[before:]
    assert "Traceback" not in said
    return said


def overwrite(offset: int, data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return damage


def cut(keep: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * keep))


def another_version(path: Path) -> None:
    noted = msgspec.msgpack.encode({"version": 99, "what": "nobody knows"})
    path.write_bytes(blake2b(noted, digest_size=16).digest() + noted)


USELESS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "journal empty": ("journal", cut(0.0), "is damaged"),
    "journal cut": ("journal", cut(0.6), "is damaged"),
    "journal garbage": ("journal", lambda path: path.write_bytes(os.urandom(300)), "is damaged"),
    "journal flipped": ("journal", overwrite(40, b"\xff"), "is damaged"),
    "journal of another version": ("journal", another_version, "another release (version 99"),
    "index empty": ("index-1", cut(0.0), "cannot be taken over"),
    "index cut": ("index-1", cut(0.5), "truncated"),
    "index without magic": ("index-1", overwrite(0, b"HELLO!!!"), "no NexusKV object"),
    "index of another version": ("index-1", overwrite(8, struct.pack("<I", 99)), "another layout"),
    "index of other sizes": ("index-1", overwrite(16, os.urandom(100)), "cannot be taken over"),
    "index gone": ("index-1", Path.unlink, "cannot open"),
    "touch gone": ("touch-1", Path.unlink, "cannot open"),
}


@pytest.mark.parametrize(("kind", "damage", "sentence"), USELESS.values(), ids=USELESS)
def test_what_cannot_be_taken_over_is_refused_and_left_alone(
    daemon: Daemon, remains: Remains, kind: str, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(remains.path(kind))
    before = remains.snapshot()
    said = refusal(daemon)

    assert sentence in said
    assert "--fresh" in said
    assert remains.snapshot() == before


@pytest.mark.parametrize("kind", ["journal", "index-1", "touch-1", "data-1"])
def test_a_fresh_start_needs_nothing_of_it(daemon: Daemon, remains: Remains, kind: str) -> None:
    remains.path(kind).write_bytes(os.urandom(300))
    daemon.restart("--fresh")
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        assert [cache.lookup(keys(cache, CHAIN, branch)) for branch in range(3)] == [0, 0, 0]
        assert put(cache, keys(cache, CHAIN)) == CHAIN


@pytest.mark.parametrize("keep", [0.0, 0.5, 2.0])
def test_a_touch_object_of_another_length_costs_hints_only(
    daemon: Daemon, remains: Remains, keep: float
) -> None:
    path = remains.path("touch-1")
    nbytes = path.stat().st_size
    cut(keep)(path)
    daemon.restart()

    assert "hints" in daemon.log
    assert path.stat().st_size == nbytes
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        assert [verified(cache, keys(cache, CHAIN, branch)) for branch in range(3)] == [CHAIN] * 3


LOST: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "emptied": cut(0.0),
    "cut": cut(0.5),
    "grown": lambda path: os.truncate(path, 1 << 20),
}


@pytest.mark.parametrize("damage", LOST.values(), ids=LOST)
def test_a_segment_that_is_lost_takes_its_own_pages_only(
    daemon: Daemon, remains: Remains, damage: Callable[[Path], object]
) -> None:
    assert len([name for name in daemon.objects() if "-data-" in name]) > 1
    damage(remains.path("data-1"))
    daemon.restart()

    assert "is lost, and the pages in it" in daemon.log
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        found = [verified(cache, keys(cache, CHAIN, branch)) for branch in range(3)]
        assert 0 < sum(found) < 3 * CHAIN
        assert sum(found) == client.stats().arenas[0].resident
        assert sum(put(cache, keys(cache, CHAIN, branch)) for branch in range(3)) == 3 * CHAIN - sum(found)


def test_no_wall_clock_is_read() -> None:
    """Time counts in seconds since the machine's start and in ticks, so a clock that is set back changes nothing."""
    root = Path(nexuskv.__file__).parent.parent
    folders = ("nexuskv/client", "nexuskv/ipc", "nexuskv/native", "nexuskv/protocol", "daemon/nexuskv_daemon")
    files = (path for folder in folders for path in (root / folder).rglob("*"))
    sources = [path for path in files if path.suffix in (".py", ".c", ".h")]
    assert len(sources) > 60
    for words in ("time.time(", "datetime", "CLOCK_REALTIME", "gettimeofday", "localtime", "time(NULL"):
        assert [path for path in sources if words in path.read_text()] == []


def test_a_clock_that_starts_anew(daemon: Daemon, remains: Remains) -> None:
    """A container may bring a monotonic clock of its own: one that stands hours before the last daemon's."""
    late = ["unshare", "--time", "--monotonic", "7200"]
    tell = [*late, sys.executable, "-c", "import time; print(time.monotonic())"]
    told = subprocess.run(tell, capture_output=True, text=True, check=False).stdout
    if float(told or 0) < time.monotonic() + 7000:
        pytest.skip("needs root, and a kernel that lets a process enter a time namespace")
    daemon.start(under=late)
    daemon.wait_ready()
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        assert put(cache, keys(cache, CHAIN, 5)) == CHAIN
    daemon.stop(signal.SIGKILL)
    daemon.restart()
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        assert [verified(cache, keys(cache, CHAIN, branch)) for branch in (0, 1, 2, 5)] == [CHAIN] * 4
