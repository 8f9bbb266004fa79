"""Messages and descriptors over a real socket pair: whole, in order, close-on-exec."""

import fcntl
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexuskv.errors import LocalError
from nexuskv.ipc import seqpacket
from nexuskv.protocol.messages import MAX_DESCRIPTORS, MAX_MESSAGE_BYTES

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for each in (ours, theirs):
        each.settimeout(30)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """A descriptor of a file that says hello."""
    path = tmp_path / "file"
    path.write_text("hello")
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_messages_keep_their_bounds(pair: Pair) -> None:
    ours, theirs = pair
    receiver = seqpacket.Receiver()
    for data in (b"one", b"two" * 1000, b"three"):
        seqpacket.send(ours, data)

    assert [bytes(receiver.plain(theirs)) for _ in range(3)] == [b"one", b"two" * 1000, b"three"]


def test_a_descriptor_arrives_with_its_message_and_close_on_exec(pair: Pair, file: int) -> None:
    ours, theirs = pair
    seqpacket.send(ours, b"with", [file])
    seqpacket.send(ours, b"without")
    receiver = seqpacket.Receiver()

    data, descriptors = receiver.with_descriptors(theirs)
    assert bytes(data) == b"with"
    assert [os.pread(descriptor, 10, 0) for descriptor in descriptors] == [b"hello"]
    assert fcntl.fcntl(descriptors[0], fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    seqpacket.close_all(descriptors)
    data, descriptors = receiver.with_descriptors(theirs)

    assert (bytes(data), descriptors) == (b"without", [])


def test_the_sender_keeps_its_descriptor(pair: Pair, file: int) -> None:
    ours, theirs = pair
    seqpacket.send(ours, b"x", [file])
    _, descriptors = seqpacket.Receiver().with_descriptors(theirs)
    seqpacket.close_all(descriptors)

    assert os.pread(file, 10, 0) == b"hello"


def test_as_many_descriptors_as_a_message_may_carry(pair: Pair, file: int) -> None:
    ours, theirs = pair
    seqpacket.send(ours, b"many", [file] * MAX_DESCRIPTORS)
    _, descriptors = seqpacket.Receiver().with_descriptors(theirs)

    assert len(set(descriptors)) == MAX_DESCRIPTORS
    seqpacket.close_all(descriptors)


def test_the_longest_message_arrives_whole_and_a_longer_one_shows(pair: Pair) -> None:
    ours, theirs = pair
    receiver = seqpacket.Receiver()
    for extra in (0, 1, 5000):
        seqpacket.send(ours, b"x" * (MAX_MESSAGE_BYTES + extra))

    assert len(receiver.plain(theirs)) == MAX_MESSAGE_BYTES
    assert len(receiver.plain(theirs)) == MAX_MESSAGE_BYTES + 1
    assert len(receiver.plain(theirs)) == MAX_MESSAGE_BYTES + 1


def test_descriptors_that_nobody_wants_are_closed_by_the_kernel(pair: Pair) -> None:
    ours, theirs = pair
    readable, writable = os.pipe()
    seqpacket.send(ours, b"gift", [writable])
    os.close(writable)

    assert bytes(seqpacket.Receiver().plain(theirs)) == b"gift"
    assert os.read(readable, 1) == b""  # the end of file: no other writer is left
    os.close(readable)


def test_a_peer_that_hung_up_shows_as_an_empty_message(pair: Pair) -> None:
    ours, theirs = pair
    ours.close()

    assert len(seqpacket.Receiver().plain(theirs)) == 0
    data, descriptors = seqpacket.Receiver().with_descriptors(theirs)
    assert (len(data), descriptors) == (0, [])


def test_credentials_are_those_of_the_process_at_the_other_end(pair: Pair) -> None:
    assert seqpacket.credentials(pair[0]) == (os.getpid(), os.getuid(), os.getgid())


def test_connecting_with_no_descriptor_left(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(LocalError, match="RLIMIT_NOFILE"):
            seqpacket.connect(tmp_path / "none.sock", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
