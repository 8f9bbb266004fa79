"""A pinned page is never overwritten, whoever writes, evicts, dies or scribbles meanwhile; an unpinned one may go."""

import os
import random
import signal
import time
from multiprocessing.connection import Connection

import pytest

import nexuskv
from nexuskv.native import PinsFull
from nexuskv.protocol import messages as m
from tests.index.conftest import PAGES, SLOTS
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import intact, keys, put, verified
from tests.support.raw import RawSession
from tests.support.waiting import until

CHAIN = 8
ROUNDS = 40


def reader(pipe: Connection, address: str, branch: int, unpin: bool) -> None:
    """An engine that pins a chain and does as it is told."""
    client = nexuskv.connect(address)
    cache = client.open(PAGES, model="m")
    hit = cache.match(keys(cache, CHAIN, branch))
    pipe.send(len(hit))
    if unpin:
        while True:
            cache.match(keys(cache, CHAIN, branch)).close()
    while pipe.recv() == "look":
        pipe.send(intact(hit))
    hit.close()
    pipe.send("closed")
    time.sleep(3600)


def hammer(cache: nexuskv.Cache, rounds: int = ROUNDS, first: int = 1000) -> None:
    """Fills the arena again and again with what nobody asks for."""
    for branch in range(first, first + rounds):
        put(cache, keys(cache, SLOTS // 4, branch))


def retiring(client: nexuskv.Client) -> int:
    return client.stats().arenas[0].retiring


def test_a_pinned_page_is_never_overwritten(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    put(cache, keys(cache, CHAIN))
    with processes.running(reader, daemon.address, 0, False) as other, cache.match(keys(cache, CHAIN)) as hit:
        assert other.receive() == len(hit) == CHAIN
        for turn in range(5):
            hammer(cache, ROUNDS // 5, 1000 + turn * ROUNDS)
            client.evict(everything=True)
            other.send("look")
            assert other.receive()
            assert intact(hit)
        assert retiring(client) == CHAIN
        hit.close()
        hammer(cache)
        other.send("look")
        assert other.receive()
        other.send("close")
        assert other.receive() == "closed"
    hammer(cache)
    assert retiring(client) == 0


def test_an_unpinned_page_goes(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, CHAIN))
    assert verified(cache, keys(cache, CHAIN)) == CHAIN
    hammer(cache)

    assert verified(cache, keys(cache, CHAIN)) == 0
    assert cache.status(keys(cache, 1))[0].reason == "evicted"
    assert client.stats().tenants[0].pinned == 0


@pytest.mark.parametrize("unpin", [False, True], ids=["holding", "between pin and unpin"])
def test_the_pins_of_a_killed_reader_go(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, unpin: bool
) -> None:
    put(cache, keys(cache, CHAIN))
    for _ in range(5 if unpin else 1):
        with processes.running(reader, daemon.address, 0, unpin) as other:
            assert other.receive() == CHAIN
            other.kill()
            other.join()
    until(lambda: client.stats().tenants[0].pinned == 0, "the pins of the dead are gone")
    assert put(cache, keys(cache, SLOTS, branch=1)) == SLOTS
    assert verified(cache, keys(cache, SLOTS, branch=1)) == SLOTS


def test_the_pins_of_a_stopped_reader_stay(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    put(cache, keys(cache, CHAIN))
    with processes.running(reader, daemon.address, 0, False) as other:
        other.receive()
        other.kill(signal.SIGSTOP)
        hammer(cache)
        client.evict(everything=True)
        assert retiring(client) == CHAIN
        other.kill(signal.SIGCONT)
        other.send("look")
        assert other.receive()


def test_pins_outlive_their_connection(daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, CHAIN))
    with daemon.client() as other:
        hit = other.open(PAGES, model="m").match(keys(cache, CHAIN))
        with pytest.raises(nexuskv.BadRequest):
            other.evict("x" * 300_000)  # the daemon ends the session of whoever sends that
        until(lambda: client.stats().sessions == 1, "the connection is lost")
        hammer(cache)
        client.evict(everything=True)
        assert (retiring(client), intact(hit)) == (CHAIN, True)
        hit.close()
        hammer(cache)
        assert retiring(client) == 0


def test_more_pins_than_there_are_words() -> None:
    with running("--pins", "10", memory="4MiB") as small, small.client() as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, 16))
        with cache.match(keys(cache, 8)) as first, cache.match(keys(cache, 2)) as second:
            with pytest.raises(PinsFull, match="close hits"):
                cache.match(keys(cache, 1))
            with pytest.raises(PinsFull):
                cache.match(keys(cache, 16))
            assert intact(first)
            assert intact(second)
            assert client.stats().tenants[0].pins_full == 2
            assert cache.lookup(keys(cache, 16)) == 16
        with pytest.raises(PinsFull):
            cache.match(keys(cache, 11))
        assert verified(cache, keys(cache, 10)) == 10


def test_a_client_that_scribbles_over_its_pins_and_hints(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    put(cache, keys(cache, CHAIN))
    with cache.match(keys(cache, CHAIN)) as hit, RawSession(daemon.socket) as vandal:
        vandal.register(PAGES)
        vandal.ask(m.Attach(vandal.number()), m.Attached)
        _, touch, pins = vandal.attached
        for turn in range(30):
            for descriptor in (touch, pins):
                size = os.fstat(descriptor).st_size
                for _ in range(20):
                    noise = dice.randbytes(dice.choice((1, 8, 64, 4096)))
                    os.pwrite(descriptor, noise, dice.randrange(max(1, size - len(noise))))
            hammer(cache, 2, 1000 * turn)
            assert intact(hit), f"seed {seed}"
        assert client.stats().sessions == 2
        vandal.alive()
    hammer(cache)
    assert put(cache, keys(cache, SLOTS, branch=1)) == SLOTS, f"seed {seed}"
    assert verified(cache, keys(cache, SLOTS, branch=1)) == SLOTS
    assert client.stats().tenants[0].pinned == 0
