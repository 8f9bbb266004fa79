"""The daemon killed at random while branches are forked, appended to and published: what was confirmed comes back."""

import contextlib
import random
import signal
import time
from multiprocessing.connection import Connection

import nexuskv
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.trees import grow, reads, root, tree

KILLS = 8
KIND = tree(kib=1)
Published = dict[int, list[int]]


def thinker(pipe: Connection, address: str, seed: int) -> None:
    """An engine that grows a tree out of its published branches, and tells of each that is confirmed, or given up."""
    chance = random.Random(seed)
    with nexuskv.connect(address) as client:
        cache = client.open(KIND, model="m")
        published: Published = {}
        while not pipe.poll():
            with contextlib.suppress(nexuskv.Disconnected, nexuskv.UnknownBranch, nexuskv.Busy):
                if len(published) > 60:
                    gone = chance.choice(list(published))
                    del published[gone]
                    pipe.send((gone, None))
                    with cache.attach_branch(gone) as branch:
                        branch.withdraw()
                number, tokens = think(cache, published, chance)
                published[number] = tokens
                pipe.send((number, tokens))
        pipe.send(None)


def think(cache: nexuskv.Cache, published: Published, chance: random.Random) -> tuple[int, list[int]]:
    """One more published branch: of the root, or forked off one that is there."""
    added = [chance.randrange(3) for _ in range(chance.randrange(1, 12))]
    if not published:
        child, tokens = root(cache, added), added
    else:
        parent = chance.choice(list(published))
        with cache.attach_branch(parent) as branch:
            child = branch.fork()
        grow(child, added)
        tokens = published[parent] + added
    with child:
        child.publish()
    return child.id, tokens


def collect(child: processes.Child, known: Published, seconds: float) -> None:
    """Takes in what the child tells for a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        take(child.receive(), known)


def take(said: tuple[int, list[int] | None], known: Published) -> None:
    number, tokens = said
    if tokens is None:
        known.pop(number, None)
    else:
        known[number] = tokens


def test_what_was_confirmed_is_there_after_every_kill() -> None:
    chance = random.Random(5)
    known: Published = {}
    with (
        running("--segment-bytes", "4MiB", memory="32MiB") as daemon,
        processes.running(thinker, daemon.address, 6) as child,
        daemon.client() as client,
    ):
        cache = client.open(KIND, model="m")
        for _ in range(KILLS):
            collect(child, known, chance.uniform(0.1, 0.5))
            daemon.stop(signal.SIGKILL)
            daemon.restart()
        child.send("enough")
        while (said := child.receive()) is not None:
            take(said, known)
        confirm(daemon, cache, known)
        daemon.stop(signal.SIGKILL)
        daemon.restart()
        confirm(daemon, cache, known)


def confirm(daemon: Daemon, cache: nexuskv.Cache, known: Published) -> None:
    """Every branch that was told of, with all its bytes, and no more than a few whose confirmation never arrived."""
    assert len(known) > 20
    assert known.keys() <= {each.branch_id for each in cache.branches()}, daemon.log
    for number, tokens in known.items():
        with cache.attach_branch(number) as branch:
            assert reads(branch, tokens)
