"""Requests about branches in no sensible order, among writers, evictions and sessions that end: the books balance."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from nexuskv.protocol import branches as b
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Reply, Request
from tests.daemon.test_fuzz import balanced
from tests.support.daemon import Daemon, running
from tests.support.pages import small
from tests.support.raw import RawSession

PAGES = small("a", kib=4, page_tokens=4)
KEYS = [number.to_bytes(32, "big") for number in range(40)]
ROOT = b"r" * 32


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "64KiB", memory="512KiB") as daemon:
        yield daemon


class Talk:
    """What was said so far: branches by number, with tip and tail as they were last heard of, and reservations."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.branches: dict[int, tuple[bytes, int]] = {1: (b"", 0)}
        self.reservations: list[int] = [0]
        self.appended = 0

    def request(self, number: int) -> Request:
        chance = self.chance
        branch = chance.choice(list(self.branches)[-8:])
        reservation = chance.choice(self.reservations[-4:])
        start = chance.randrange(len(KEYS))
        chain = KEYS[start : start + chance.randrange(1, 6)]
        makers: list[Callable[[], Request]] = [
            lambda: m.Reserve(number, 1, chain),
            lambda: m.Commit(number, reservation, [], rest=True),
            lambda: m.Abort(number, reservation),
            lambda: m.Evict(number, "a", chance.randrange(1 << 16), chance.random() < 0.2),
            lambda: b.OpenBranch(number, 1, ROOT, chain[-1], len(chain)),
            lambda: b.OpenBranch(number, 1, ROOT, b"", 0),
            lambda: b.Fork(number, branch, chance.randrange(1, 4)),
            lambda: self._append(number, branch, chain),
            lambda: self._append(number, branch, chain),
            lambda: b.GetPath(number, branch),
            lambda: b.GetPath(number, branch, chain[0]),
            lambda: b.PublishBranch(number, branch, chance.random() < 0.6),
            lambda: b.AttachBranch(number, branch, 1, ROOT),
            lambda: b.DropBranches(number, [branch]),
            lambda: b.TraceBranch(number, branch),
            lambda: b.ListBranches(number, 1, ROOT),
        ]
        return chance.choice(makers)()

    def heard(self, asked: Request, reply: Reply) -> None:
        if isinstance(reply, b.Branched):
            self.branches[reply.row.branch] = reply.tip, len(reply.tail) // 4
        elif isinstance(reply, b.Forked):
            self.branches.update(
                (reply.first + at, (reply.tip, len(reply.tail) // 4)) for at in range(reply.count)
            )
        elif isinstance(reply, b.Path) and isinstance(asked, b.GetPath) and not asked.below:
            self.branches[asked.branch] = (reply.keys or [b""])[0], len(reply.tail) // 4
        elif isinstance(reply, m.Reserved | b.Appending):
            self.reservations.append(reply.reservation)
        self.appended += isinstance(reply, b.Appending)
        if len(self.branches) > 40:
            del self.branches[self.chance.choice(list(self.branches))]

    def _append(self, number: int, branch: int, keys: list[bytes]) -> b.Append:
        tip, tail = self.branches[branch]
        rest = self.chance.randrange(4)
        tokens = 4 * len(keys) - tail - (4 - rest if rest else 0)
        return b.Append(number, branch, tip, keys, max(tokens, 0), bytes(4 * rest))


@pytest.mark.parametrize("seed", range(3))
def test_requests_about_branches_in_any_order(daemon: Daemon, seed: int) -> None:
    chance = random.Random(seed)
    talk = Talk(chance)
    with RawSession(daemon.socket) as watcher, ExitStack() as stack:
        sessions = [talker(daemon, stack) for _ in range(2)]
        for step in range(5000):
            session = chance.choice(sessions)
            asked = talk.request(session.number())
            session.send(asked)
            reply = session.receive()
            assert reply.id == asked.id
            talk.heard(asked, reply)
            if step % 50 == 0:
                assert balanced(watcher.ask(m.GetStats(watcher.number()), m.Stats))
            if chance.random() < 0.01:
                session.close()
                sessions[sessions.index(session)] = talker(daemon, stack)
        stack.close()
        with RawSession(daemon.socket) as last:
            last.register(PAGES)
            withdraw_all(last)
        watcher.ask(m.Evict(watcher.number(), everything=True), m.Evicted)
        stats = watcher.ask(m.GetStats(watcher.number()), m.Stats)
        while stats.sessions > 1:
            stats = watcher.ask(m.GetStats(watcher.number()), m.Stats)
        watcher.ask(m.Evict(watcher.number(), everything=True), m.Evicted)
        (arena,) = watcher.ask(m.GetStats(watcher.number()), m.Stats).arenas

    assert talk.appended > 50
    assert (arena.writing, arena.retiring, arena.branches, arena.resident) == (0, 0, 0, 0)
    assert arena.free == arena.slots


def talker(daemon: Daemon, stack: ExitStack) -> RawSession:
    session = stack.enter_context(RawSession(daemon.socket))
    session.register(PAGES)
    return session


def withdraw_all(session: RawSession) -> None:
    """Published branches stay when everybody is gone, so somebody must end them."""
    while rows := session.ask(b.ListBranches(session.number(), 1, ROOT), b.Branches).rows:
        for row in rows:
            session.ask(b.AttachBranch(session.number(), row.branch, 1, ROOT), b.Branched)
            session.ask(b.PublishBranch(session.number(), row.branch, published=False), m.Done)
