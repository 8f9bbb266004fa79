"""Who is alive, told by a lock on an open file description; and what fork leaves to a child."""

import os
import signal
import socket
from pathlib import Path

from nexuskv.native import _core
from tests.native.objects import Objects, keys


def reopened(descriptor: int) -> int:
    """Another open file description of the same object."""
    return os.open(Path(f"/proc/self/fd/{descriptor}"), os.O_RDWR | os.O_CLOEXEC)


def test_one_description_holds_the_lock(objects: Objects) -> None:
    first, second = reopened(objects.pins), reopened(objects.pins)
    try:
        assert not _core.owner_alive(objects.pins)
        assert _core.lock_owner(first)
        assert not _core.lock_owner(second)
        assert _core.owner_alive(objects.pins)
        assert _core.owner_alive(second)
        assert not _core.owner_alive(first)
    finally:
        os.close(first)
        os.close(second)
    assert not _core.owner_alive(objects.pins)


def test_a_reader_keeps_the_lock_for_as_long_as_it_may_pin(objects: Objects) -> None:
    objects.publish(1)
    theirs = reopened(objects.pins)
    _core.lock_owner(theirs)
    pins = objects.reader(theirs).pin(keys(1))
    os.close(theirs)
    assert _core.owner_alive(objects.pins)

    pins.release()
    del pins

    assert not _core.owner_alive(objects.pins)


def test_a_killed_client_lets_go_of_its_lock_but_not_of_its_words(objects: Objects) -> None:
    objects.publish(1, 2)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        theirs = reopened(objects.pins)
        _core.lock_owner(theirs)
        pins = objects.reader(theirs).pin(keys(1, 2))
        os.write(write, bytes([len(pins)]))
        signal.pause()
    assert os.read(read, 1) == b"\x02"
    assert _core.owner_alive(objects.pins)

    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)

    assert not _core.owner_alive(objects.pins)
    assert _core.PinArray(objects.pins).held == 2  # the daemon drops the object, and its pins with it


def in_child(check: object) -> bool:
    """Runs `check` in a forked child; was it true there?"""
    child = os.fork()
    if child == 0:
        os._exit(0 if callable(check) and check() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_can_neither_use_nor_end_its_parents_pins(objects: Objects) -> None:
    objects.publish(1, 2)
    reader, array = objects.reader(), _core.PinArray(objects.pins)
    pins = reader.pin(keys(1, 2))

    def refused() -> bool:
        try:
            reader.pin(keys(1))
        except _core.Moved:
            pins.release()
            return True
        return False

    assert in_child(refused)
    assert array.held == 2
    assert pins.valid() == 2
    pins.release()
    assert array.held == 0


def test_a_forked_child_does_not_keep_its_parents_lock(objects: Objects) -> None:
    theirs = reopened(objects.pins)
    _core.lock_owner(theirs)
    reader = objects.reader(theirs)
    os.close(theirs)
    mine, childs = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        childs.send(b"started")
        childs.recv(1)  # until the parent has seen that the lock is gone
        os._exit(0)
    childs.close()
    assert mine.recv(7) == b"started"
    alive_before = _core.owner_alive(objects.pins)
    del reader
    alive_after = _core.owner_alive(objects.pins)
    mine.close()

    assert (alive_before, alive_after) == (True, False)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_attaches_for_itself(objects: Objects) -> None:
    objects.publish(1)
    reader = objects.reader()
    other = objects.new_pins()

    assert in_child(lambda: len(objects.reader(other).pin(keys(1))) == 1)
    assert reader.lookup(keys(1)) == 1
