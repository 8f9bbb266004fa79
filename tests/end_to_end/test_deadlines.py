"""A daemon that stands still: calls give up in time, and nothing that it grants later is lost."""

import gc
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nexuskv
from nexuskv.ipc import seqpacket
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Reply
from tests.native.objects import Objects
from tests.support.activation import listening
from tests.support.daemon import Daemon, running
from tests.support.pages import fill, intact, keys, put, small, verified
from tests.support.waiting import until

PAGES = small(kib=4)
TIMEOUT = 0.2
ASKING = ("reserve", "status", "stats", "open")
"""Calls that need the daemon also when hits do not."""
CALLS = ("match", "lookup", *ASKING)
either_way = pytest.mark.parametrize("shared", [True, False], ids=["shared", "asked"])


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "256KiB", memory="1MiB") as daemon:
        yield daemon


@pytest.fixture
def shared() -> bool:
    """Whether `client` reads through the shared index; else it asks for each hit."""
    return False


@pytest.fixture
def client(daemon: Daemon, *, shared: bool) -> Iterator[nexuskv.Client]:
    """A client that is in a hurry; ten pages are resident."""
    with daemon.client(timeout=TIMEOUT, shared=shared) as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, 10))
        yield client


@contextmanager
def standing_still(daemon: Daemon) -> Iterator[None]:
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("call", "shared"), [*((call, False) for call in CALLS), *((call, True) for call in ASKING)]
)
def test_a_call_gives_up_and_what_comes_late_is_given_back(
    daemon: Daemon, client: nexuskv.Client, call: str
) -> None:
    cache = client.open(PAGES, model="m")
    calls: dict[str, Callable[[], object]] = {
        "match": lambda: cache.match(keys(cache, 10)),
        "reserve": lambda: cache.reserve(keys(cache, 5, branch=1)),
        "lookup": lambda: cache.lookup(keys(cache, 10)),
        "status": lambda: cache.status(keys(cache, 10, branch=2)),
        "stats": client.stats,
        "open": lambda: client.open(small("another", kib=8), model="m"),
    }
    with standing_still(daemon):
        for _ in range(2):
            with pytest.raises(nexuskv.DeadlineExceeded, match=r"within 0\.2 s"):
                calls[call]()

    until(lambda: client.stats().tenants[0].pinned == 0, "the late pins are given back")
    assert client.stats().arenas[0].writing == 0
    assert client.stats().sessions == 1  # the session went on
    assert put(cache, keys(cache, 5, branch=1)) == 5
    assert verified(cache, keys(cache, 10)) == 10


@either_way
def test_a_hit_is_read_and_closed_while_the_daemon_stands_still(
    daemon: Daemon, client: nexuskv.Client
) -> None:
    cache = client.open(PAGES, model="m")
    with cache.match(keys(cache, 10)) as hit, standing_still(daemon):
        assert intact(hit)
        started = time.monotonic()
        hit.close()
        assert time.monotonic() - started < 10

    until(lambda: client.stats().tenants[0].pinned == 0, "the pins are given back")


def test_more_hits_closed_than_the_socket_takes(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    hits = [cache.match(keys(cache, 2)) for _ in range(3000)]
    with standing_still(daemon):
        for hit in hits[:600]:  # as many as the socket takes without waiting
            hit.close()
    for hit in hits[600:]:
        hit.close()

    until(lambda: client.stats().tenants[0].pinned == 0, "all pins are given back")


@either_way
def test_a_commit_that_gave_up_may_be_tried_again(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    wanted = keys(cache, 5, branch=1)
    reservation = cache.reserve(wanted)
    fill(reservation)
    with standing_still(daemon):
        for _ in range(2):  # sent by the first, and waited for again by the second
            with pytest.raises(nexuskv.DeadlineExceeded):
                reservation.commit()

    reservation.commit()
    assert verified(cache, wanted) == 5


@pytest.mark.parametrize("wait", [True, False], ids=["wait", "tell"])
def test_a_commit_that_could_not_be_sent_may_be_tried_again(
    daemon: Daemon, client: nexuskv.Client, *, wait: bool
) -> None:
    cache = client.open(PAGES, model="m")
    wanted = keys(cache, 5, branch=1)
    reservation = cache.reserve(wanted)
    fill(reservation)
    with standing_still(daemon):
        clog(cache)
        for _ in range(2):
            with pytest.raises(nexuskv.DeadlineExceeded):
                reservation.commit(wait=wait)

    until(lambda: client.stats().sessions == 1, "the daemon goes on")
    reservation.commit(wait=wait)
    assert verified(cache, wanted) == 5


def clog(cache: nexuskv.Cache) -> None:
    """Sends until the socket of a daemon that stands still takes no more."""
    session = cache._keeper.session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no public call sends without waiting for so long

    def without_end() -> None:
        while True:
            session.tell(m.Release(0, []))

    with pytest.raises(nexuskv.DeadlineExceeded):
        without_end()


def test_an_abort_that_could_not_be_sent_is_done_late(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    reservation = cache.reserve(keys(cache, 5, branch=1))
    with standing_still(daemon):
        clog(cache)
        with pytest.raises(nexuskv.DeadlineExceeded):
            reservation.abort()

    until(lambda: client.stats().arenas[0].writing == 0, "the slots are given back")


def test_a_reader_waits_once_for_a_daemon_that_stands_still(daemon: Daemon) -> None:
    with daemon.client(timeout=1) as reader, daemon.client() as writer:
        cache, written = reader.open(PAGES, model="m"), writer.open(PAGES, model="m")
        put(written, keys(written, 4))
        with standing_still(daemon):
            started = time.monotonic()
            for _ in range(50):
                with cache.match(keys(cache, 4)) as hit:
                    assert len(hit) == 0  # its segment is not mapped here
                assert cache.lookup(keys(cache, 4)) == 0
            assert time.monotonic() - started < 20  # not a timeout each

        until(lambda: cache.lookup(keys(cache, 4)) == 4, "it is asked again once it answers")


@either_way
def test_an_abort_that_gave_up_is_done_late(daemon: Daemon, client: nexuskv.Client) -> None:
    cache = client.open(PAGES, model="m")
    reservation = cache.reserve(keys(cache, 5, branch=1))
    with standing_still(daemon), pytest.raises(nexuskv.DeadlineExceeded):
        reservation.abort()

    until(lambda: client.stats().arenas[0].writing == 0, "the slots are given back")


def half_a_daemon(listener: socket.socket) -> None:
    """Knows all pages, pins those of the first message, and never answers the second."""
    session, _ = listener.accept()
    with session, Objects() as index:
        while data := session.recv(m.MAX_MESSAGE_BYTES):
            reply: Reply
            match codec.decode_request(data):
                case m.Hello(number):
                    reply = m.Welcome(number, 1, 1, "half", "uid:0", "0")
                case m.Attach(number):
                    given = [index.index, index.touch, index.pins]
                    seqpacket.send(session, codec.encode(m.Attached(number, 1)), given)
                    continue
                case m.Register(number):
                    reply = m.Registered(number, 1)
                case m.Lookup(number, _, wanted):
                    reply = m.Found(number, bytes(len(wanted)))
                case m.Pin(number, _, wanted) if len(wanted) == m.MAX_KEYS:
                    reply = m.Pinned(number, 1, 0, [0] * len(wanted))
                case _:
                    continue
            session.send(codec.encode(reply))


def test_a_long_match_that_gives_up_in_the_middle_drops_nothing(tmp_path: Path) -> None:
    with listening(tmp_path / "d.sock") as listener, ThreadPoolExecutor() as pool:
        serving = pool.submit(half_a_daemon, listener)
        with nexuskv.connect(f"unix:{tmp_path}/d.sock", timeout=TIMEOUT, shared=False) as client:
            cache = client.open(PAGES, model="m")
            with pytest.raises(nexuskv.DeadlineExceeded):
                cache.match(keys(cache, m.MAX_KEYS + 1))
            gc.collect()  # a hit dropped without close() would warn
        serving.result(timeout=30)


def test_connecting_to_a_daemon_that_stands_still(daemon: Daemon) -> None:
    with standing_still(daemon), pytest.raises(nexuskv.DeadlineExceeded):
        daemon.client(timeout=TIMEOUT)


@pytest.mark.parametrize("timeout", [0, -1, 1e-9, float("inf"), float("nan"), None])
def test_a_timeout_that_is_none(daemon: Daemon, timeout: Any) -> None:
    with pytest.raises(nexuskv.BadRequest, match="between a microsecond and"):
        daemon.client(timeout=timeout)


def test_evicting_more_than_a_message_can_say(client: nexuskv.Client) -> None:
    with pytest.raises(nexuskv.BadRequest, match="nbytes"):
        client.evict(nbytes=1 << 70)


def test_the_path_of_a_socket_is_an_address(daemon: Daemon) -> None:
    with nexuskv.connect(daemon.socket) as client:
        assert client.stats().sessions == 1
    with pytest.raises(nexuskv.BadRequest, match="socket address 3"):
        nexuskv.connect(3)  # type: ignore[arg-type]  # that is what is tested
