"""Bad uses of branches: each a clear error, and nothing is lost by it."""

from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest

import nexuskv
from nexuskv.contract import Window
from nexuskv.protocol import branches as b
from nexuskv.protocol import messages as m
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, small
from tests.support.raw import RawSession, fresh
from tests.support.trees import fill, grow, reads, root, tree
from tests.support.users import as_nobody, become_nobody

PROMPT = list(range(100, 110))
KIND = tree()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--socket-mode", "0666", "--segment-bytes", "4MiB", memory="16MiB") as daemon:
        daemon.socket.parent.chmod(0o755)
        yield daemon


@pytest.fixture
def cache(daemon: Daemon) -> Iterator[nexuskv.Cache]:
    with daemon.client() as client:
        yield client.open(KIND, model="m")


def test_an_unknown_branch(cache: nexuskv.Cache) -> None:
    with pytest.raises(nexuskv.UnknownBranch, match="branch 12345 is not there: never made, dropped by all"):
        cache.attach_branch(12345)


USES: dict[str, Callable[[nexuskv.Branch], object]] = {
    "fork": lambda branch: branch.fork(),
    "append": lambda branch: branch.append([1]),
    "publish": lambda branch: branch.publish(),
    "withdraw": lambda branch: branch.withdraw(),
    "info": lambda branch: branch.info(),
    "lineage": lambda branch: branch.lineage(),
    "refresh": lambda branch: branch.refresh(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_dropped_branch(cache: nexuskv.Cache, use: Callable[[nexuskv.Branch], object]) -> None:
    branch = root(cache, PROMPT)
    branch.drop()
    with pytest.raises(nexuskv.Closed, match="was dropped here"):
        use(branch)


def test_a_branch_of_another_process_that_it_did_not_publish(daemon: Daemon, cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    with daemon.client() as other, pytest.raises(nexuskv.UnknownBranch, match="not published"):
        other.open(KIND, model="m").attach_branch(branch.id)


def test_a_branch_of_another_model_or_kind(daemon: Daemon, cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    branch.publish()
    with daemon.client() as other:
        for elsewhere in (other.open(KIND, model="n"), other.open(small("another"), model="m")):
            assert elsewhere.branches() == []
            with pytest.raises(nexuskv.BadRequest, match="open the cache that it was made in"):
                elsewhere.attach_branch(branch.id)


def stranger(pipe: Connection, daemon: Daemon, branch: int, root_key: bytes) -> None:
    """Another user, who tries everything with a branch that is not theirs."""
    become_nobody()
    with RawSession(daemon.socket) as session:
        arena = session.register(KIND)
        for request in (
            b.AttachBranch(session.number(), branch, arena, root_key),
            b.Fork(session.number(), branch, 1),
            b.Append(session.number(), branch, b"", fresh(1), 4),
            b.PublishBranch(session.number(), branch),
            b.DropBranches(session.number(), [branch]),
            b.TraceBranch(session.number(), branch),
            b.GetPath(session.number(), branch),
        ):
            pipe.send(session.refusal(request).code)
        listed = session.ask(b.ListBranches(session.number(), arena, root_key), b.Branches)
        pipe.send(listed.rows)


@as_nobody
def test_a_branch_of_another_tenant(daemon: Daemon, cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    branch.publish()
    with processes.running(stranger, daemon, branch.id, cache.root, context=processes.FORK) as child:
        assert [child.receive() for _ in range(7)] == ["unknown_branch"] * 7
        assert child.receive() == []
    assert branch.cow_ref_cnt == 2
    assert reads(branch, PROMPT)


def test_a_second_append_while_one_is_open(cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    with branch.append([1]) as pages:
        fill(pages, branch, [1])
        for use in (lambda: branch.append([2]), branch.fork, branch.publish, branch.drop):
            with pytest.raises(nexuskv.Busy, match="commit or abort it first"):
                use()
    grow(branch, [2])
    assert reads(branch, [*PROMPT, 1, 2])


def test_two_branches_that_append_the_same_at_once(cache: nexuskv.Cache) -> None:
    left, right = root(cache, PROMPT).fork(2)
    with left.append([1] * 8) as pages:
        fill(pages, left, [1] * 8)
        with pytest.raises(nexuskv.Busy, match="the same tokens"):
            right.append([1] * 8)
    assert len(grow(right, [1] * 8)) == 0


@pytest.mark.parametrize("count", [0, -1, b.MAX_HELD + 1, 1 << 62])
def test_no_children_or_too_many(cache: nexuskv.Cache, count: int) -> None:
    branch = root(cache, PROMPT)
    with pytest.raises(nexuskv.LocalError, match=f"count is {count}"):
        branch.fork(count)


def test_more_branches_than_a_session_may_hold(cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    with pytest.raises(nexuskv.BadRequest, match=f"{b.MAX_HELD} is the most; drop some"):
        branch.fork(b.MAX_HELD)
    assert branch.cow_ref_cnt == 1, "those that were made are let go"
    assert len(branch.fork(b.MAX_HELD - 1)) == b.MAX_HELD - 1


def test_nothing_to_append_and_too_much(cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    with pytest.raises(nexuskv.LocalError, match="token_ids is empty"):
        branch.append([])
    with pytest.raises(nexuskv.LocalError, match="4096 is the most"):
        branch.append([1] * 4 * 4097)
    with pytest.raises(nexuskv.LocalError, match=r"token_ids\[1\]"):
        branch.append([1, -1])
    assert reads(branch, PROMPT)


def test_pages_of_an_append_one_by_one(cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    with branch.append([1]) as pages:
        fill(pages, branch, [1])
        with pytest.raises(nexuskv.LocalError, match="as a whole"):
            pages[0].commit()
    assert reads(branch, [*PROMPT, 1])


def test_a_context_that_is_not_resident(cache: nexuskv.Cache) -> None:
    with pytest.raises(nexuskv.ParentMissing, match="match it first, and keep the hit open"):
        cache.branch(keys(cache, 3))


def test_a_kind_of_state_that_has_no_branches(cache: nexuskv.Cache, daemon: Daemon) -> None:
    windowed = nexuskv.mha(
        "window", layers=1, kv_heads=1, head_dim=64, page_tokens=4, dtype="float16", engine_family="VLLM",
        reuse=Window(tokens=8), compatibility_flags=["COW_BRANCH"],
    )  # fmt: skip
    with daemon.client() as client, pytest.raises(nexuskv.BadRequest, match="ALL_PAGES"):
        client.open(windowed, model="m").branch([])


def test_more_than_there_is_room_for(daemon: Daemon, cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    others = [root(cache, [token] * 4000) for token in range(3)]
    with pytest.raises(nexuskv.ArenaFull, match="drop branches"):
        branch.append([9] * 5000)
    assert reads(branch, PROMPT)
    others[0].drop()
    grow(branch, [9] * 3900)
    assert reads(branch, [*PROMPT, *[9] * 3900])
    assert reads(others[1], [1] * 4000)


LIES: dict[str, Callable[[int, int, int, list[bytes]], m.Message]] = {
    "a tip without pages": lambda n, arena, _, chain: b.OpenBranch(n, arena, chain[0], chain[-1], 0),
    "pages without a tip": lambda n, arena, _, chain: b.OpenBranch(n, arena, chain[0], b"", 3),
    "more tokens than numbers": lambda n, arena, _, chain: b.OpenBranch(n, arena, chain[0], chain[-1], 2**62),
    "a tip that is no page": lambda n, arena, _, chain: b.OpenBranch(n, arena, chain[0], b"x" * 32, 3),
    "a short tip": lambda n, arena, _, chain: b.OpenBranch(n, arena, chain[0], b"x", 3),
    "another arena": lambda n, arena, _, chain: b.OpenBranch(n, arena + 1, chain[0], b"", 0),
    "a tail that does not fit": lambda n, _, branch, chain: b.Append(
        n, branch, chain[-1], fresh(1), 4, b"12"
    ),
    "fewer tokens than keys": lambda n, _, branch, chain: b.Append(n, branch, chain[-1], fresh(3), 4),
    "more tokens than keys": lambda n, _, branch, chain: b.Append(n, branch, chain[-1], fresh(1), 2**63 - 1),
    "a key twice": lambda n, _, branch, chain: b.Append(n, branch, chain[-1], fresh(1) * 2, 8),
    "another tip": lambda n, _, branch, chain: b.Append(n, branch, chain[0], fresh(1), 4),
    "a path from nowhere": lambda n, _, branch, __: b.GetPath(n, branch, b"y" * 32),
    "a drop too many": lambda n, _, branch, __: b.DropBranches(n, [branch, branch]),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_requests_that_contradict_themselves(
    daemon: Daemon, lie: Callable[[int, int, int, list[bytes]], m.Message]
) -> None:
    with RawSession(daemon.socket) as session:
        arena = session.register(KIND)
        chain = session.committed(arena, 3)
        opened = session.ask(b.OpenBranch(session.number(), arena, chain[0], chain[-1], 3), b.Branched)
        branch = opened.row.branch
        refused = session.refusal(lie(session.number(), arena, branch, chain))  # type: ignore[arg-type]  # all requests
        assert refused.code != "error"
        assert len(refused.message) > 20
        stats = session.ask(m.GetStats(session.number()), m.Stats)
        assert (stats.arenas[0].writing, stats.arenas[0].resident) == (0, 3)


def test_an_append_by_hand_is_aborted_and_committed_like_any_reservation(daemon: Daemon) -> None:
    with RawSession(daemon.socket) as session:
        arena = session.register(KIND)
        opened = session.ask(b.OpenBranch(session.number(), arena, b"r" * 32, b"", 0), b.Branched)
        branch = opened.row.branch
        first = fresh(2)
        ask = b.Append(session.number(), branch, b"", first, 6, b"\1\0\0\0\2\0\0\0")
        granted = session.ask(ask, b.Appending)
        assert (granted.positions, granted.source) == ([0, 1], b.NO_HANDLE)
        session.ask(m.Abort(session.number(), granted.reservation), m.Done)
        assert session.refusal(m.Abort(session.number(), granted.reservation)).code == "not_reserved"
        granted = session.ask(ask, b.Appending)
        assert session.refusal(m.Commit(session.number(), granted.reservation, [0])).code == "not_reserved"
        done = session.ask(m.Commit(session.number(), granted.reservation, [], rest=True), m.Committed)
        assert done.pages == 2
        path = session.ask(b.GetPath(session.number(), branch), b.Path)
        assert (path.keys, path.more, path.tokens) == (first[::-1], False, 6)
        below = m.Reserve(session.number(), arena, fresh(1), first[-1])
        assert "only partly filled" in session.refusal(below).message
