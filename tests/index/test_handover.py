"""Stops, upgrades and namesakes: what is handed over, what is removed, and who may have an instance."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import nexuskv
from tests.index.conftest import PAGES, SLOTS
from tests.support.daemon import Daemon, running
from tests.support.pages import intact, keys, put, small, verified
from tests.support.users import NOBODY, as_nobody
from tests.support.waiting import until

CHAIN = 8
SHM = Path("/dev/shm")


@pytest.fixture
def keeping() -> Iterator[Daemon]:
    """A daemon that leaves everything behind when it is told to stop, until it is told to start afresh."""
    with running("--keep", "--segment-bytes", "64KiB", memory="256KiB") as daemon:
        yield daemon
        daemon.stop(signal.SIGKILL)


@pytest.mark.parametrize("how", ["stop", "hand_over"])
def test_keep_and_stop_keeping(keeping: Daemon, daemon: Daemon, how: str) -> None:
    daemon = keeping if how == "stop" else daemon
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, CHAIN))
        with cache.match(keys(cache, CHAIN)) as hit:
            epoch = client.boot_epoch
            assert getattr(daemon, how)() == 0
            assert intact(hit)
            assert verified(cache, keys(cache, CHAIN)) == CHAIN
            daemon.restart()
            assert intact(hit)
            client.evict(everything=True)
            put(cache, keys(cache, SLOTS - CHAIN, 1))
            assert intact(hit)
            assert client.boot_epoch != epoch


def test_a_budget_that_the_machine_does_not_have_is_refused_and_nothing_is_lost(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, CHAIN))
    daemon.stop(signal.SIGKILL)
    before = set(daemon.objects())
    daemon.start("--memory", "1024TiB")
    assert daemon.process.wait(timeout=60) == 1
    assert "--memory asks for 1024 TiB" in daemon.log
    assert before - set(daemon.objects()) <= {f"nexuskv-{daemon.instance}-lock"}
    daemon.restart()
    with daemon.client() as client:
        assert verified(client.open(PAGES, model="m"), keys(cache, CHAIN)) == CHAIN


def test_stop_keeping_without_a_daemon_says_so(daemon: Daemon) -> None:
    daemon.stop()
    command = [sys.executable, "-m", "nexuskv_daemon", "--socket", daemon.address, "--stop-keeping"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert ended.returncode == 1
    assert "no daemon at" in ended.stderr


def test_a_clean_stop_leaves_nothing_and_clients_notice(daemon: Daemon, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, CHAIN))
    with cache.match(keys(cache, CHAIN)) as hit:
        assert daemon.stop() == 0
        assert daemon.objects() == []
        with pytest.raises(nexuskv.Disconnected):
            cache.match(keys(cache, CHAIN))
        with pytest.raises(nexuskv.Disconnected):
            cache.lookup(keys(cache, CHAIN))
        assert intact(hit)
        daemon.restart()
        assert intact(hit)
    assert verified(cache, keys(cache, CHAIN)) == 0
    assert put(cache, keys(cache, CHAIN)) == CHAIN


@pytest.mark.parametrize("notices", [True, False])
def test_a_fresh_start(daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, notices: bool) -> None:
    put(cache, keys(cache, CHAIN))
    with cache.match(keys(cache, CHAIN)) as hit:
        daemon.stop(signal.SIGKILL)
        if notices:
            with pytest.raises(nexuskv.Disconnected):
                client.stats()
            assert verified(cache, keys(cache, CHAIN)) == CHAIN
        daemon.restart("--fresh")
        assert cache.lookup(keys(cache, CHAIN)) == 0
        assert verified(cache, keys(cache, CHAIN)) == 0
        assert client.stats().arenas[0].resident == 0
        for branch in range(20):
            put(cache, keys(cache, SLOTS // 4, branch))
        assert intact(hit)


def strays(instance: str) -> list[Path]:
    """Objects such as a daemon of `instance` leaves when it is killed at a bad moment, and none of its own."""
    kinds = ("data-99", "index-7", "touch-7", "touch-8", "pins-77", "pins-78", "journal.new")
    return [SHM / f"nexuskv-{instance}-{kind}" for kind in kinds]


@pytest.mark.parametrize("known", [True, False])
def test_what_nobody_can_use_is_removed_and_nothing_else(
    daemon: Daemon, cache: nexuskv.Cache, known: bool
) -> None:
    similar = [
        f"{daemon.instance}2",
        f"{daemon.instance}-data",
        f"{daemon.instance}-data-1",
        f"x-{daemon.instance}",
    ]
    others = [path for name in similar for path in strays(name)]
    others += [SHM / f"nexuskv-{daemon.instance}-data-x", SHM / f"nexuskv-{daemon.instance}-other-1"]
    own = strays(daemon.instance)
    put(cache, keys(cache, CHAIN))
    if known:
        daemon.stop(signal.SIGKILL)
    else:
        daemon.stop()
    try:
        for path in (*own, *others):
            path.write_bytes(os.urandom(64))
        (SHM / f"nexuskv-{daemon.instance}-pins-77").write_bytes(b"")
        daemon.restart()
        assert [path.name for path in own[:-1] if path.exists()] == []
        assert [path.name for path in others if not path.exists()] == []
        assert verified(cache, keys(cache, CHAIN)) == (CHAIN if known else 0)
    finally:
        for path in (*own, *others):
            path.unlink(missing_ok=True)


def contender(daemon: Daemon, name: str) -> "subprocess.Popen[str]":
    """A second daemon of the same instance, on a socket of its own."""
    socket = f"unix:{daemon.socket.with_name(name)}"
    options = [
        "--instance",
        daemon.instance,
        "--socket",
        socket,
        "--memory",
        "256KiB",
        "--segment-bytes",
        "64KiB",
    ]
    command = [sys.executable, "-m", "nexuskv_daemon", *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_a_second_daemon_of_a_live_instance_is_refused(daemon: Daemon, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, CHAIN))
    for options in ([], ["--fresh"]):
        with contender(daemon, "second") as second:
            _, said = second.communicate(timeout=60)
        assert (second.returncode, "runs already" in said) == (1, True), options
    assert verified(cache, keys(cache, CHAIN)) == CHAIN


def test_two_daemons_race_for_an_instance_whose_daemon_was_killed(
    daemon: Daemon, cache: nexuskv.Cache
) -> None:
    put(cache, keys(cache, CHAIN))
    daemon.stop(signal.SIGKILL)
    racers = [contender(daemon, name) for name in ("a", "b", "c")]
    winners = []
    for racer in racers:
        assert racer.stderr is not None
        said = ""
        while "serves up to" not in said and "runs already" not in said:
            line = racer.stderr.readline()
            assert line, said
            said += line
        if "serves up to" in said:
            winners.append(racer)
    assert len(winners) == 1
    winners[0].send_signal(signal.SIGKILL)
    for racer in racers:
        racer.communicate(timeout=60)
    daemon.restart()
    assert verified(cache, keys(cache, CHAIN)) == CHAIN


def test_an_instance_that_is_new_has_nothing_to_take_over() -> None:
    with running(memory="1MiB") as daemon, daemon.client() as client:
        assert client.open(small(f"d-{uuid.uuid4().hex}"), model="m").lookup([]) == 0
        assert client.stats().memory_used == 0


@pytest.fixture
def left(daemon: Daemon) -> Daemon:
    """A daemon that was killed, and left pages."""
    with daemon.client() as client:
        put(client.open(PAGES, model="m"), keys(client.open(PAGES, model="m"), CHAIN))
    daemon.stop(signal.SIGKILL)
    return daemon


@as_nobody
@pytest.mark.parametrize("kind", ["journal", "index-1", "touch-1", "data-1"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_what_another_user_made_or_may_open_is_not_taken_over(left: Daemon, kind: str, how: str) -> None:
    path = SHM / f"nexuskv-{left.instance}-{kind}"
    if how == "owner":
        os.chown(path, NOBODY, NOBODY)
    else:
        path.chmod(0o666)
    left.start()
    assert left.process.wait(timeout=60) == 1
    assert "is not this daemon's" in left.log
    assert "Traceback" not in left.log
    os.chown(path, 0, 0)
    path.chmod(0o600)
    left.restart()
    with left.client() as client:
        cache = client.open(PAGES, model="m")
        assert verified(cache, keys(cache, CHAIN)) == CHAIN


@pytest.mark.parametrize("name", ["journal.new", "journal"])
def test_links_where_the_journal_is_written_lead_nowhere(tmp_path: Path, daemon: Daemon, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    path = SHM / f"nexuskv-{daemon.instance}-{name}"
    path.unlink(missing_ok=True)
    path.symlink_to(precious)
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        assert put(cache, keys(cache, CHAIN)) == CHAIN

    assert precious.read_text() == "keep me"


def test_objects_that_no_daemon_names_so_are_left_alone(left: Daemon) -> None:
    odd = SHM / f"nexuskv-{left.instance}-data-007"
    odd.write_bytes(b"what")
    try:
        left.restart()
        with left.client() as client:
            cache = client.open(PAGES, model="m")
            assert verified(cache, keys(cache, CHAIN)) == CHAIN
        assert odd.exists()
    finally:
        odd.unlink()


def test_stop_keeping_stops_no_daemon_of_another_name(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "nexuskv_daemon", "--socket", daemon.address, "--stop-keeping"]
    ended = subprocess.run(
        [*command, "--instance", "another"], capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.returncode == 1
    assert f"is instance '{daemon.instance}', not 'another'" in ended.stderr
    with daemon.client() as client:
        assert client.stats().sessions == 1


def test_what_a_hit_held_beyond_a_smaller_budget_goes_after_it(left: Daemon) -> None:
    left.restart()
    with left.client() as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, SLOTS - CHAIN, 1))
        with cache.match(keys(cache, SLOTS - CHAIN, 1)) as hit:
            left.stop(signal.SIGKILL)
            left.restart("--memory", "64KiB")
            assert client.stats().memory_used > client.stats().memory_budget
            assert intact(hit)

        def within_budget() -> bool:
            put(cache, keys(cache, 1, branch=2))
            client.evict()
            stats = client.stats()
            return stats.memory_used <= stats.memory_budget

        until(within_budget, "what nobody reads any more was given up")
