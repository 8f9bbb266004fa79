"""The suite `crash`: kills the daemon again and again under load, and counts what should not have happened.

Owns the kills and the last look. What the engines do and check meanwhile is in `load.py`.
"""

import contextlib
import random
import time
from functools import partial

import nexuskv
from nexuskv.bench import load
from nexuskv.bench.companion import Companion
from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.load import Orders, Tally
from nexuskv.bench.setting import KIB, MIB, MODEL, new_instance, random_keys
from nexuskv.bench.suite import Effort, Suite, Tell
from nexuskv.errors import StartupError
from nexuskv.harness.daemon import PrivateDaemon

ENGINES = 3
LIFE = (0.02, 1.2)
"""Seconds from a start to the next kill. A start takes a third of one, so some die before they serve."""
SEGMENT = 2 * MIB
OWN_PAGES = 2 * load.OWN_CHAINS * load.CHAIN
"""Room for twice as many pages of its own as an engine keeps, since some are always being written."""
SHARED = 24 * MIB
"""For a fifth of what the engines would like to share."""
BUDGET = SHARED + ENGINES * OWN_PAGES * 5 * KIB
SETTLING_SECONDS = 15.0
FIXED_OBJECTS = 4
"""Index, touch bits, journal, lock; besides, there is one object a segment and one a client."""

DEFINITIONS = (
    Definition("kills", "kills", ">=", None, "of the daemon, at random, also while it starts"),
    Definition("pages_written", "pages", ">=", None, "whose commit succeeded"),
    Definition("pages_verified", "pages", ">=", None, "pinned, and every byte compared"),
    Definition("pages_lost", "pages", "<=", 0, "committed, not evicted, and absent after a restart"),
    Definition("pages_torn", "pages", "<=", 0, "with a byte that is not what was written"),
    Definition("leaked", "objects", "<=", 0, "shared-memory objects and slots that nobody gave back"),
    Definition("client_restarts", "clients", "<=", 0, "that could not go on by themselves"),
    Definition("seconds", "s", "<=", None, "of the whole run"),
)


def suite(kills: int, seed: int) -> Suite:
    """The suite, for so many kills."""
    text = f"{ENGINES} engine processes under load while their daemon is killed {kills} times (seed {seed})"
    return Suite("crash", text, DEFINITIONS, partial(_measure, kills, seed))


def _measure(kills: int, seed: int, _: Effort, readings: Readings, tell: Tell) -> None:
    """Adds everything; raises StartupError when a daemon does not take over what the one before it left."""
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        options = ("--memory", str(BUDGET), "--segment-bytes", str(SEGMENT), "--index-entries", "65536")
        daemon = stack.enter_context(PrivateDaemon(new_instance(), *options))
        _make_room(daemon)
        engines = [
            stack.enter_context(Companion("nexuskv.bench.load", Orders(daemon.socket, seed, number)))
            for number in range(ENGINES)
        ]
        _kill(daemon, kills, random.Random(seed), tell)  # noqa: S311  # moments of a test
        tell("looking whether all is there")
        daemon.wait_until_it_answers()
        found = _answers(engines, readings)
        total = _last_look(daemon, found)
        leaked = _leaked(daemon)
        daemon.stop()
        leaked += len(daemon.objects)
    figures = {
        "kills": kills, "pages_written": total.written, "pages_verified": total.verified, "pages_lost": total.lost,
        "pages_torn": total.torn, "leaked": leaked, "client_restarts": ENGINES - len(found),
        "seconds": time.monotonic() - start,
    }  # fmt: skip
    for name, value in figures.items():
        readings.add(name, None, value)


def _make_room(daemon: PrivateDaemon) -> None:
    """Gives each engine's own pages their segments, before what is shared takes all memory there is."""
    with nexuskv.connect(daemon.socket) as client:
        for number in range(ENGINES):
            client.open(load.own_kind(number), model=MODEL).reserve(random_keys(OWN_PAGES)).abort()


def _kill(daemon: PrivateDaemon, kills: int, chance: random.Random, tell: Tell) -> None:
    for kill in range(1, kills + 1):
        tell(f"kill {kill} of {kills}")
        time.sleep(chance.uniform(*LIFE))
        if not daemon.running:
            raise StartupError(f"before kill {kill} the daemon ended by itself: {daemon.last_words()}")
        daemon.kill()
        daemon.start()


def _answers(engines: list[Companion], readings: Readings) -> dict[int, Tally]:
    """By engine; one that ended by itself has none, and what it said last becomes a note."""
    for engine in engines:
        engine.tell_to_stop()
    found = {number: engine.answer(Tally) for number, engine in enumerate(engines)}
    for number, tally in found.items():
        if tally is None:
            readings.notes.append(f"client_restarts: engine {number} ended: {engines[number].last_words}")
    return {number: tally for number, tally in found.items() if tally is not None}


def _last_look(daemon: PrivateDaemon, found: dict[int, Tally]) -> Tally:
    """The sum of all, with every page that must be there looked at once more, by a client that saw no crash."""
    total = Tally()
    with nexuskv.connect(daemon.socket) as client:
        for number, tally in found.items():
            cache = client.open(load.own_kind(number), model=MODEL)
            for chain in tally.own:
                load.check(cache, load.chain(cache, chain), tally)
            total.written += tally.written
            total.verified += tally.verified
            total.lost += tally.lost
            total.torn += tally.torn
    return total


def _leaked(daemon: PrivateDaemon) -> int:
    """Slots and objects that are still taken though nobody uses them, when the daemon had time to notice."""
    deadline = time.monotonic() + SETTLING_SECONDS
    with nexuskv.connect(daemon.socket) as client:
        while (leaked := _unaccounted(daemon, client)) and time.monotonic() < deadline:
            time.sleep(0.05)
    return leaked


def _unaccounted(daemon: PrivateDaemon, client: nexuskv.Client) -> int:
    arenas = client.stats().arenas
    slots = sum(arena.slots - arena.free - arena.resident for arena in arenas)
    objects = len(daemon.objects) - FIXED_OBJECTS - sum(arena.segments for arena in arenas)
    return slots + max(0, objects)
