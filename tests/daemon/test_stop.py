"""How nexuskvd ends, what it leaves, and what the next one does with that."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nexuskv
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, put, small, verified
from tests.support.waiting import until

PAGES = small(kib=4)
SHM = Path("/dev/shm")
Start = Callable[..., Daemon]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts daemons; whatever is left of them goes at the end."""
    started: list[Daemon] = []

    def start_one(*options: str, instance: str | None = None) -> Daemon:
        started.append(Daemon("--segment-bytes", "64KiB", *options, memory="1MiB", instance=instance))
        return started[-1]

    yield start_one
    for daemon in started:
        daemon.clean_up()


def fill(daemon: Daemon, branch: int = 1) -> None:
    """Makes the daemon grow by some segments."""
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        assert put(cache, keys(cache, 40, branch)) == 40


def data(daemon: Daemon) -> list[str]:
    return [name for name in daemon.objects() if "-data-" in name]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(start: Start, number: int) -> None:
    daemon = start()
    daemon.wait_ready()
    fill(daemon)
    assert len(data(daemon)) >= 3

    assert daemon.stop(number) == 0
    assert daemon.objects() == []
    assert not daemon.socket.exists()
    assert "Traceback" not in daemon.log


def test_clients_of_a_stopped_daemon_are_disconnected(start: Start) -> None:
    daemon = start()
    daemon.wait_ready()
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        daemon.stop()

        with pytest.raises(nexuskv.Disconnected):
            cache.lookup(keys(cache, 1))


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.3])
def test_a_signal_while_starting_leaves_nothing(start: Start, delay: float) -> None:
    daemon = start()
    time.sleep(delay)  # wherever it is by now

    assert daemon.stop() in (0, -signal.SIGTERM)
    assert daemon.objects() == []
    assert not daemon.socket.exists()
    assert "Traceback" not in daemon.log


def test_keep_leaves_the_objects_in_place(start: Start) -> None:
    daemon = start("--keep")
    daemon.wait_ready()
    fill(daemon)
    kept = data(daemon)

    assert daemon.stop() == 0
    assert set(kept) < set(daemon.objects())
    assert not daemon.socket.exists()
    daemon.restart()
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        assert verified(cache, keys(cache, 40, 1)) == 40


def test_what_a_killed_daemon_left_goes_with_the_next_fresh_one_of_its_name_only(start: Start) -> None:
    killed = start()
    similar = [start(instance=f"{killed.instance}{end}") for end in ("0", "-data", "-data-1")]
    for daemon in (killed, *similar):
        daemon.wait_ready()
        fill(daemon)
    dead = similar.pop()
    for daemon in (killed, dead):
        daemon.stop(signal.SIGKILL)
    others = {name for daemon in (dead, *similar) for name in data(daemon)}
    left = set(data(killed)) - others
    assert left

    killed.restart("--fresh")

    present = {path.name for path in SHM.iterdir()}
    assert not left & present
    assert others <= present
    dead.restart()
    with dead.client() as client:
        cache = client.open(PAGES, model="m")
        assert verified(cache, keys(cache, 40, 1)) == 40
    for daemon in (killed, *similar):
        fill(daemon, branch=2)
        assert daemon.stop() == 0


def test_a_hit_stays_whole_when_the_daemon_stops(start: Start) -> None:
    daemon = start()
    daemon.wait_ready()
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        wanted = keys(cache, 40)
        put(cache, wanted)
        with cache.match(wanted) as hit:
            before = [page.buffer.copy() for page in hit]
            assert daemon.stop() == 0

            assert all((page.buffer == was).all() for page, was in zip(hit, before, strict=True))
            assert any(was.any() for was in before)


def test_stopping_while_segments_are_made(start: Start) -> None:
    daemon = start()
    daemon.wait_ready()
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        reservation = cache.reserve(keys(cache, 100))
        assert daemon.stop() == 0
        with pytest.raises(nexuskv.Disconnected):
            reservation.commit()

    assert daemon.objects() == []


def test_a_stopped_daemon_does_not_remove_the_socket_of_its_successor(start: Start) -> None:
    first = start()
    first.wait_ready()
    first.socket.unlink()
    with_same_path = Daemon(memory="1MiB", socket=first.socket)
    try:
        with_same_path.wait_ready()
        assert first.stop() == 0

        with_same_path.client().close()
        assert with_same_path.stop() == 0
    finally:
        with_same_path.clean_up()


def test_a_daemon_starts_after_a_clean_stop_as_if_new() -> None:
    with running(memory="1MiB") as daemon:
        with daemon.client() as client:
            cache = client.open(PAGES, model="m")
            put(cache, keys(cache, 3))
            first = client.boot_epoch
        daemon.stop()
        daemon.restart()
        with daemon.client() as client:
            cache = client.open(PAGES, model="m")
            assert client.boot_epoch != first
            assert verified(cache, keys(cache, 3)) == 0
            until(lambda: client.stats().sessions == 1, "only this session is there")
