"""Thousands of well-formed requests in no sensible order: each is answered, and the daemon's books always balance."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from nexuskv import contract
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Request
from nexuskv.protocol.offers import GetOffers
from tests.support.daemon import Daemon, running
from tests.support.pages import small
from tests.support.raw import RawSession
from tests.support.waiting import until

DESCRIPTORS = [
    small("a", kib=4),
    small("b", kib=12),
    contract.mamba2(
        "c", heads=4, head_dim=16, state_size=16, dtype="float32", page_tokens=4, engine_family="VLLM"
    ),
]
KEYS = [number.to_bytes(32, "big") for number in range(60)]


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "64KiB", memory="512KiB") as daemon:
        yield daemon


def request(chance: random.Random, number: int) -> Request:
    """Any request but hello and drain, which ends the daemon, of a small world, so that many of them meet."""
    arena, reservation = chance.randrange(1, 5), chance.choice([0, 0, chance.randrange(1, 400)])
    start = chance.randrange(len(KEYS))
    chain = KEYS[start : start + chance.randrange(12)]
    some = [chance.choice(KEYS) for _ in range(chance.randrange(6))]
    makers: list[Callable[[], Request]] = [
        lambda: m.Register(number, contract.encode(chance.choice(DESCRIPTORS))),
        lambda: m.Attach(number),
        lambda: m.Map(number, [chance.randrange(1, 12) for _ in range(3)]),
        lambda: m.Lookup(number, arena, some),
        lambda: m.Measure(number, arena, chance.choice([chain, some])),
        lambda: m.Pin(number, arena, chance.choice([chain, some]), chance.random() < 0.3),
        lambda: m.Reserve(number, arena, chance.choice([chain, some]), b"", reservation),
        lambda: m.Reserve(number, arena, chain, chance.choice(KEYS), reservation),
        lambda: m.Commit(number, reservation, [chance.randrange(8) for _ in range(3)], chance.random() < 0.6),
        lambda: m.Abort(number, reservation),
        lambda: m.Withdraw(number, chance.randrange(1, 200)),
        lambda: m.Release(number, [chance.randrange(1, 60) for _ in range(3)]),
        lambda: m.GetStats(number),
        lambda: m.Evict(
            number, chance.choice(["", "a", "b"]), chance.randrange(1 << 16), chance.random() < 0.1
        ),
        lambda: GetOffers(
            number, chance.choice([DESCRIPTORS[0].descriptor_id, "other"]), [*chain, KEYS[0]], 10
        ),
    ]
    return chance.choice(makers)()


def balanced(stats: m.Stats) -> bool:
    """Whether every slot of every arena is free or one page's, and the budget is kept."""
    return stats.memory_used <= stats.memory_budget and all(
        arena.free + arena.resident + arena.writing + arena.retiring == arena.slots for arena in stats.arenas
    )


def idle(stats: m.Stats) -> bool:
    """Whether one session is left, and nobody holds anything; the slots of one that was attached take a second."""
    return (
        stats.sessions == 1
        and all(arena.writing == arena.retiring == 0 for arena in stats.arenas)
        and all(tenant.pinned == 0 for tenant in stats.tenants)
    )


@pytest.mark.parametrize("seed", range(3))
def test_requests_in_any_order(daemon: Daemon, seed: int) -> None:
    chance = random.Random(seed)
    granted = 0
    with RawSession(daemon.socket) as watcher, ExitStack() as stack:
        sessions = [stack.enter_context(RawSession(daemon.socket)) for _ in range(4)]
        for step in range(2500):
            session = chance.choice(sessions)
            asked = request(chance, session.number())
            session.send(asked)
            reply = session.receive()
            assert reply.id == asked.id
            granted += isinstance(reply, m.Reserved) and len(reply.handles)
            if step % 50 == 0:
                assert balanced(watcher.ask(m.GetStats(watcher.number()), m.Stats))
            if chance.random() < 0.01:
                session.close()
                sessions[sessions.index(session)] = stack.enter_context(RawSession(daemon.socket))
        stack.close()
        watcher.ask(m.Evict(watcher.number(), everything=True), m.Evicted)
        until(lambda: idle(watcher.ask(m.GetStats(watcher.number()), m.Stats)), "nothing is held any more")
        assert balanced(watcher.ask(m.GetStats(watcher.number()), m.Stats))

    assert granted > 100
