"""Two users on one daemon: neither finds the other's pages, and a reader cannot turn its descriptor into a pen."""

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from nexuskv.protocol import messages as m
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import small
from tests.support.raw import RawSession, fresh
from tests.support.users import NOBODY, as_nobody, become_nobody

PAGES = small(kib=64)
pytestmark = as_nobody


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon that everybody may connect to."""
    with running("--socket-mode", "0666", "--segment-bytes", "1MiB", memory="4MiB") as daemon:
        daemon.socket.parent.chmod(0o755)
        yield daemon


def tried(action: Callable[[], object]) -> str:
    """Name of the error that an action met, or "done"."""
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def stranger(pipe: Connection, daemon: Daemon, keys: list[bytes]) -> None:
    """Another user: what it finds of `keys`, what it sees and what it may evict, in a session of its own."""
    become_nobody()
    with RawSession(daemon.socket) as session:
        arena = session.register(PAGES)
        hit = session.ask(m.Pin(session.number(), arena, keys), m.Pinned)
        stats = session.ask(m.GetStats(session.number()), m.Stats)
        evicted = session.ask(m.Evict(session.number(), everything=True), m.Evicted)
        pipe.send((hit.handles, session.states(arena, keys), [a.tenant for a in stats.arenas], evicted.pages))


def test_users_find_see_and_evict_their_own_pages_only(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        arena = session.register(PAGES)
        keys = session.committed(arena, 3)
        with processes.running(stranger, daemon, keys, context=processes.FORK) as child:
            assert child.receive() == ([], bytes([m.NEVER_SEEN] * 3), [f"uid:{NOBODY}"], 0)

        assert session.states(arena, keys) == bytes(3)


def test_the_daemons_user_sees_all_tenants(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        with processes.running(stranger, daemon, fresh(1), context=processes.FORK) as child:
            child.receive()
        arenas = session.ask(m.GetStats(session.number()), m.Stats).arenas

        assert [arena.tenant for arena in arenas] == [f"uid:{NOBODY}"]


def forger(pipe: Connection, daemon: Daemon, keys: list[bytes]) -> None:
    """Another user that writes pages, reads them in a second session, and tries to write with what it got there."""
    become_nobody()
    with RawSession(daemon.socket) as writer, RawSession(daemon.socket) as reader:
        arena = writer.register(PAGES)
        reservation = writer.reserve(arena, keys).reservation
        writer.ask(m.Commit(writer.number(), reservation, [], rest=True), m.Committed)
        reader.ask(m.Pin(reader.number(), reader.register(PAGES), keys), m.Pinned)
        ((number, writable),) = reader.segments
        descriptor = reader.segments[number, writable]
        path = Path(f"/dev/shm/nexuskv-{daemon.instance}-data-{number}")
        tries: dict[str, Callable[[], object]] = {
            "read": lambda: mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ).close(),
            "map writable": lambda: mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE),
            "write": lambda: os.pwrite(descriptor, b"x", 0),
            "truncate": lambda: os.ftruncate(descriptor, 0),
            "change mode": lambda: os.fchmod(descriptor, 0o777),
            "re-open writable": lambda: os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR),
            "re-open by name": lambda: os.open(path, os.O_RDWR),
            "unlink": path.unlink,
        }
        pipe.send((writable, {name: tried(action) for name, action in tries.items()}))


def test_a_readers_descriptor_cannot_be_made_writable(daemon: Daemon) -> None:
    with processes.running(forger, daemon, fresh(2), context=processes.FORK) as child:
        writable, outcome = child.receive()

    assert not writable
    assert outcome.pop("read") == "done"
    assert set(outcome.values()) <= {"EACCES", "EPERM", "EBADF", "EINVAL"}, outcome


def test_a_descriptor_comes_once_a_session_and_mode(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        arena = session.register(PAGES)
        keys = session.committed(arena, 2)
        session.committed(arena, 2)
        for _ in range(3):
            session.ask(m.Pin(session.number(), arena, keys), m.Pinned)

        notices = [notice for notice in session.notices if isinstance(notice, m.Segments)]
        assert [[segment.writable for segment in notice.segments] for notice in notices] == [[True, False]]
        with RawSession(daemon.socket) as other:
            other.ask(m.Pin(other.number(), other.register(PAGES), keys), m.Pinned)
            assert len(other.segments) == 1


def test_a_socket_for_the_own_user_only_keeps_others_out() -> None:
    def visit(pipe: Connection, daemon: Daemon) -> None:
        become_nobody()
        pipe.send(tried(lambda: RawSession(daemon.socket)))

    with running(memory="1MiB") as private:
        private.socket.parent.chmod(0o755)
        with processes.running(visit, private, context=processes.FORK) as child:
            assert child.receive() == "EACCES"
