"""Random bytes in the index: the next daemon takes over what is whole or refuses; a reader never crashes."""

import contextlib
import os
import random
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import nexuskv
from tests.index.conftest import PAGES
from tests.support import processes
from tests.support.daemon import Daemon
from tests.support.pages import intact, keys, put, verified

CHAIN = 8
BRANCHES = 6
SHM = Path("/dev/shm")
SEEDS = [random.randrange(2**32) for _ in range(10)]
TURNS = 300
HEADER = 4096
"""Bytes in which one flipped bit turns a reader away: what comes after them is what it must not trust."""


def index_of(daemon: Daemon) -> Path:
    return SHM / f"nexuskv-{daemon.instance}-index-1"


def filled(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        for branch in range(BRANCHES):
            put(cache, keys(cache, CHAIN, branch))


def damage(dice: random.Random, whole: bytes, used: list[int], path: Path) -> None:
    """Writes noise into the object in place: mostly where something stands, sometimes over whole pages."""
    with path.open("r+b") as file:
        for _ in range(dice.choice((1, 1, 10, 100))):
            noise = dice.randbytes(dice.choice((1, 2, 8, 64, 256)))
            place = dice.choice(used) if dice.random() < 0.9 else dice.randrange(used[0], len(whole))
            file.seek(min(place, len(whole) - len(noise)))
            file.write(noise)


def test_the_next_daemon_serves_what_is_whole_or_says_what_to_do(daemon: Daemon) -> None:
    filled(daemon)
    daemon.stop(signal.SIGKILL)
    remains = {name: (SHM / name).read_bytes() for name in daemon.objects()}
    whole = remains[index_of(daemon).name]
    used = [place for place in range(128, len(whole), 8) if whole[place : place + 8].strip(b"\0")]
    taken_over = 0
    for seed in SEEDS:
        for name, data in remains.items():
            (SHM / name).touch(0o600)
            (SHM / name).write_bytes(data)
        damage(random.Random(seed), whole, used, index_of(daemon))
        daemon.start()
        try:
            daemon.wait_ready()
        except AssertionError:
            assert daemon.process.wait(timeout=60) == 1, f"seed {seed}: {daemon.log}"
            assert "--fresh" in daemon.log.splitlines()[-1], f"seed {seed}: {daemon.log}"
            continue
        taken_over += 1
        serves(daemon, seed)
        for name in set(daemon.objects()) - remains.keys():
            (SHM / name).unlink()
    assert taken_over


def serves(daemon: Daemon, seed: int) -> None:
    """Whatever is found is right, what is not can be written anew; then the daemon is killed."""
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        for branch in range(BRANCHES):
            found = verified(cache, keys(cache, CHAIN, branch))
            assert put(cache, keys(cache, CHAIN, branch)) == CHAIN - found, f"seed {seed}"
            assert verified(cache, keys(cache, CHAIN, branch)) == CHAIN, f"seed {seed}"
        client.evict(everything=True)
        (arena,) = client.stats().arenas
        assert arena.free == arena.slots, f"seed {seed}: {arena}"
    daemon.stop(signal.SIGKILL)


def reader(pipe: Connection, daemon: Daemon) -> None:
    """An engine that goes on reading whatever stands in the index."""
    client = daemon.client()
    cache = client.open(PAGES, model="m")
    chains = [keys(cache, CHAIN, branch) for branch in range(BRANCHES)]
    pipe.send([verified(cache, chain) for chain in chains])
    while pipe.recv():
        hits = 0
        for chain in chains:
            with contextlib.suppress(nexuskv.NexusError, IndexError), cache.match(chain) as hit:
                hits += intact(hit) * len(hit)
            with contextlib.suppress(nexuskv.NexusError):
                cache.lookup(chain)
            with contextlib.suppress(nexuskv.NexusError):
                cache.status(chain)
        pipe.send(hits)
    os._exit(0)


@pytest.mark.parametrize("seed", [random.randrange(2**32)])
def test_a_reader_never_crashes(daemon: Daemon, seed: int) -> None:
    dice = random.Random(seed)
    filled(daemon)
    with processes.running(reader, daemon, context=processes.FORK) as child:
        assert child.receive() == [CHAIN] * BRANCHES
        daemon.stop(signal.SIGKILL)
        path = index_of(daemon)
        whole = path.read_bytes()
        used = [place for place in range(HEADER, len(whole), 8) if whole[place : place + 8].strip(b"\0")]
        hits = 0
        for _ in range(TURNS):
            damage(dice, whole, used, path)
            child.send(True)
            hits += child.receive()
            with path.open("r+b") as file:
                file.write(whole)  # in place, where the child has it mapped
        assert 0 < hits < TURNS * BRANCHES * CHAIN
        child.send(False)
        assert child.join() == 0
