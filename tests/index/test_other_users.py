"""Another user on the same daemon: its own index, no key of anybody else, and nothing there that it could harm."""

import ctypes
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from nexuskv.native import Reader
from nexuskv.protocol import messages as m
from tests.index.conftest import PAGES
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.raw import RawSession, fresh
from tests.support.users import as_nobody, become_nobody
from tests.support.waiting import until

pytestmark = as_nobody


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon that everybody may connect to."""
    with running("--socket-mode", "0666", "--segment-bytes", "64KiB", memory="256KiB") as daemon:
        daemon.socket.parent.chmod(0o755)
        yield daemon


def attached(session: RawSession) -> list[int]:
    """Descriptors of index, touch and pin object."""
    session.ask(m.Attach(session.number()), m.Attached)
    return session.attached


def reader(pipe: Connection, daemon: Daemon, keys: list[bytes]) -> None:
    """Another user that looks for `keys`, and commits some of its own."""
    become_nobody()
    with RawSession(daemon.socket) as session:
        own = session.committed(session.register(PAGES), 3)
        index = Reader(*attached(session))
        names = [Path(f"/proc/self/fd/{descriptor}").readlink().name for descriptor in session.attached]
        pipe.send((own, index.lookup(own), index.lookup(keys), index.status(keys), names))
        pipe.recv()


def test_neither_finds_the_others_keys(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        keys = session.committed(session.register(PAGES), 3)
        index = Reader(*attached(session))
        ours = [Path(f"/proc/self/fd/{descriptor}").readlink().name for descriptor in session.attached]
        with processes.running(reader, daemon, keys, context=processes.FORK) as child:
            theirs, own, foreign, status, names = child.receive()
            assert (own, foreign, status) == (3, 0, bytes(3))
            assert not set(names) & set(ours)
            assert (index.lookup(keys), index.lookup(theirs)) == (3, 0)
            child.send("done")


def curious(pipe: Connection, daemon: Daemon, numbers: list[int]) -> None:
    """Another user that asks for segments without having any of its own."""
    become_nobody()
    with RawSession(daemon.socket) as session:
        session.ask(m.Map(session.number(), numbers), m.Done)
        pipe.send(list(session.segments))


def test_nobody_else_is_given_a_segment(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        session.committed(session.register(PAGES), 3)
        numbers = sorted({number for number, _ in session.segments})
        with processes.running(curious, daemon, numbers, context=processes.FORK) as child:
            assert child.receive() == []
        with RawSession(daemon.socket) as own:
            own.ask(m.Map(own.number(), numbers), m.Done)
            assert [number for number, _ in own.segments] == numbers


def refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError:
        return True
    return False


def forger(pipe: Connection, daemon: Daemon) -> None:
    """Another user that tries to write the index, and to open what it did not get."""
    become_nobody()
    with RawSession(daemon.socket) as session:
        session.committed(session.register(PAGES), 1)
        index, touch, pins = attached(session)
        tries: dict[str, Callable[[], object]] = {
            "map writable": lambda: mmap.mmap(index, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE),
            "write": lambda: os.pwrite(index, b"x", 0),
            "truncate": lambda: os.ftruncate(index, 0),
            "change mode": lambda: os.fchmod(index, 0o777),
        }
        for descriptor in (index, touch, pins):
            path = f"/proc/self/fd/{descriptor}"
            tries[f"re-open {path}"] = partial(os.open, path, os.O_RDWR)
        for name in daemon.objects():
            for mode in (os.O_RDONLY, os.O_RDWR):
                tries[f"open {name} {mode}"] = partial(os.open, Path("/dev/shm", name), mode)
            tries[f"unlink {name}"] = Path("/dev/shm", name).unlink
        pipe.send({name: refused(action) for name, action in tries.items()})


def test_nobody_else_can_write_or_open_an_object(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        session.committed(session.register(PAGES), 1)
        attached(session)
        with processes.running(forger, daemon, context=processes.FORK) as child:
            outcome = child.receive()

    assert len(outcome) > 20
    assert [name for name, held in outcome.items() if not held] == []


def saboteur(pipe: Connection, daemon: Daemon, what: str) -> None:
    """Another user that cuts off an object that it may write."""
    become_nobody()
    with RawSession(daemon.socket) as session:
        session.committed(session.register(PAGES), 1)
        _, touch, pins = attached(session)
        data = next(each for (_, writable), each in session.segments.items() if writable)
        os.ftruncate({"touch": touch, "pins": pins, "data": data}[what], 0)
        session.send(m.GetStats(session.number()))
        pipe.send("done")
        pipe.recv()


cut_by_another = pytest.mark.parametrize("what", ["touch", "pins", "data"])


@cut_by_another
def test_an_object_cut_off_by_another_user_stops_nobody(daemon: Daemon, what: str) -> None:
    with RawSession(daemon.socket) as session:
        arena = session.register(PAGES)
        keys = session.committed(arena, 3)
        with processes.running(saboteur, daemon, what, context=processes.FORK) as child:
            assert child.receive() == "done"
            for _ in range(20):
                session.committed(arena, 16)
            session.ask(m.Evict(session.number(), everything=True), m.Evicted)
            assert session.alive()
            child.send("done")
        assert session.states(arena, keys) == bytes([m.EVICTED] * 3)
        session.committed(arena, 16)
        assert session.states(arena, fresh(1)) == bytes([m.NEVER_SEEN])


@cut_by_another
def test_an_object_cut_off_by_another_user_costs_the_next_daemon_nothing(daemon: Daemon, what: str) -> None:
    with RawSession(daemon.socket) as session:
        keys = session.committed(session.register(PAGES), 3)
        with processes.running(saboteur, daemon, what, context=processes.FORK) as child:
            assert child.receive() == "done"
            daemon.stop(signal.SIGKILL)
            daemon.restart()
            with RawSession(daemon.socket) as successor:
                arena = successor.register(PAGES)
                assert successor.states(arena, keys) == bytes([m.PRESENT] * 3)
                successor.committed(arena, 16)
            child.send("done")


def test_the_guard_against_cut_off_objects_outlives_a_signal(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        session.committed(session.register(PAGES), 1)
        daemon.process.send_signal(signal.SIGBUS)
        assert session.alive()
    test_an_object_cut_off_by_another_user_stops_nobody(daemon, "pins")


FALLOC_FL_KEEP_SIZE = 1
MUCH = 16 << 20


def grower(pipe: Connection, daemon: Daemon, what: str, mode: int) -> None:
    """Another user that has an object that it may write take much more memory, and still works with it."""
    become_nobody()
    with RawSession(daemon.socket) as session:
        arena = session.register(PAGES)
        session.committed(arena, 1)
        _, touch, pins = attached(session)
        data = next(each for (_, writable), each in session.segments.items() if writable)
        chosen = {"touch": touch, "pins": pins, "data": data}[what]
        before = os.fstat(chosen).st_size
        offset, length = ctypes.c_long(before), ctypes.c_long(MUCH)
        assert ctypes.CDLL(None).fallocate(chosen, mode, offset, length) == 0
        pipe.send(before)
        pipe.recv()
        pipe.send((os.fstat(chosen).st_size, session.committed(arena, 1)))


def taken(daemon: Daemon) -> int:
    """Bytes of memory in the daemon's objects."""
    return sum(Path("/dev/shm", name).stat().st_blocks * 512 for name in daemon.objects())


@pytest.mark.parametrize("mode", [0, FALLOC_FL_KEEP_SIZE], ids=["longer", "past its end"])
@pytest.mark.parametrize("what", ["touch", "pins", "data"])
def test_an_object_made_longer_by_another_user_is_cut_back(daemon: Daemon, what: str, mode: int) -> None:
    with RawSession(daemon.socket) as session:
        keys = session.committed(arena := session.register(PAGES), 3)
        with processes.running(grower, daemon, what, mode, context=processes.FORK) as child:
            before = child.receive()
            until(lambda: taken(daemon) < MUCH, "the memory is given back")
            child.send("go on")
            assert child.receive()[0] == before
        assert session.states(arena, keys) == bytes([m.PRESENT] * 3)
