"""Branches of several processes: who finds whose, and what is left when one of them, or the daemon, is killed."""

import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

import nexuskv
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.figures import figures
from tests.support.trees import fill, grow, holds, reads, root, tree
from tests.support.waiting import until

PROMPT = list(range(100, 110))
KIND = tree()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "4MiB", memory="16MiB") as daemon:
        yield daemon


@pytest.fixture
def cache(client: nexuskv.Client) -> nexuskv.Cache:
    return client.open(KIND, model="m")


def thinker(pipe: Connection, address: str, last: str) -> None:
    """An engine that makes a tree, publishes one branch of it, tells its numbers, and stops at the step `last`."""
    with nexuskv.connect(address) as client:
        cache = client.open(KIND, model="m")
        parent = root(cache, PROMPT)
        published, private, growing = parent.fork(3)
        grow(published, [1] * 5)
        grow(private, [2] * 5)
        grow(growing, [3] * 5)
        published.publish()
        pipe.send((parent.id, published.id, private.id))
        if last == "growing a tail of its own":
            with growing.append([4, 5]) as pages:
                fill(list(pages)[:1], growing, [4, 5])  # as many of its pages as were done
                pipe.send(last)
                pipe.recv()
        if last == "appending to what is published":
            with published.append([6] * 9) as pages:
                fill(pages, published, [6] * 9)
                pipe.send(last)
                pipe.recv()
        pipe.send(last)
        pipe.recv()


STEPS = ["at rest", "growing a tail of its own", "appending to what is published"]


@pytest.mark.parametrize("step", STEPS)
def test_what_was_published_outlives_its_process_and_nothing_else(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, step: str
) -> None:
    with processes.running(thinker, daemon.address, step) as child:
        parent, published, private = child.receive()
        assert child.receive() == step
        with cache.attach_branch(published) as branch:
            assert branch.cow_ref_cnt == 3
            assert reads(branch, [*PROMPT, *[1] * 5])
            child.kill()
            until(lambda: branch.cow_ref_cnt == 2, "the branch is let go")
            until(lambda: figures(client).writing == 0, "the slots come back")
            assert [each.branch_id for each in branch.lineage()] == [published, parent]
            grow(branch, [7])
            assert reads(branch, [*PROMPT, *[1] * 5, 7])
        for gone in (private, parent):
            with pytest.raises(nexuskv.UnknownBranch):
                cache.attach_branch(gone)
    client.evict(everything=True)
    assert (figures(client).branches, figures(client).resident) == (1, 4)
    assert [each.branch_id for each in cache.branches()] == [published]

    with cache.attach_branch(published) as branch:
        branch.withdraw()
    client.evict(everything=True)
    assert (cache.branches(), figures(client).resident, figures(client).free) == (
        [],
        0,
        figures(client).slots,
    )


def sleeper(pipe: Connection, address: str, branch: int) -> None:
    """An engine that holds somebody else's branch and a child of it."""
    with nexuskv.connect(address) as client:
        cache = client.open(KIND, model="m")
        there = cache.attach_branch(branch)
        child = there.fork()
        grow(child, [9])
        pipe.send(reads(child, [*PROMPT, 9]))
        pipe.recv()


def test_a_holder_that_is_killed_lets_go(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    branch = root(cache, PROMPT)
    branch.publish()
    with processes.running(sleeper, daemon.address, branch.id) as child:
        assert child.receive()
        assert branch.cow_ref_cnt == 4
        child.kill()
        until(lambda: branch.cow_ref_cnt == 2, "the branch is let go")
    assert figures(client).branches == 1


def test_two_processes_that_append_to_one_branch_notice_each_other(
    daemon: Daemon, cache: nexuskv.Cache
) -> None:
    branch = root(cache, PROMPT)
    branch.publish()
    with daemon.client() as other:
        theirs = other.open(KIND, model="m").attach_branch(branch.id)
        with branch.append([1]) as pages:
            fill(pages, branch, [1])
            with pytest.raises(nexuskv.Busy, match="is open: commit or abort it first"):
                theirs.append([2])
            child = theirs.fork()
        with pytest.raises(nexuskv.BranchMoved, match="refresh"):
            theirs.append([2])
        theirs.refresh()
        grow(theirs, [2])
        assert reads(theirs, [*PROMPT, 1, 2])
        assert reads(child, PROMPT)
        late = branch.fork()
        assert late.tokens == 12
        assert reads(late, [*PROMPT, 1, 2])
        assert branch.tokens == 11
        branch.refresh()
        assert reads(branch, [*PROMPT, 1, 2])


@pytest.mark.parametrize("end", ["killed", "handed over"])
def test_published_branches_outlive_the_daemon(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache, end: str
) -> None:
    parent = root(cache, PROMPT)
    child, private = parent.fork(2)
    grow(child, [1] * 7)
    grow(private, [2] * 7)
    child.publish()
    grow(child, [3])
    with child.read() as hit:
        if end == "killed":
            daemon.stop(signal.SIGKILL)
        else:
            daemon.hand_over()
        assert holds(hit, [*PROMPT, *[1] * 7, 3])
        assert reads(child, [*PROMPT, *[1] * 7, 3]), "reading needs no daemon"
        daemon.restart()

    assert child.depth == 1
    assert [each.branch_id for each in child.lineage()] == [child.id, parent.id]
    grow(child, [4] * 4)
    assert reads(child, [*PROMPT, *[1] * 7, 3, *[4] * 4])
    for use in (private.fork, private.publish, lambda: private.append([1]), parent.info, parent.fork):
        with pytest.raises(nexuskv.UnknownBranch):
            use()
    client.evict(everything=True)
    assert reads(child, [*PROMPT, *[1] * 7, 3, *[4] * 4])
    child.withdraw()
    child.drop()
    client.evict(everything=True)
    assert (figures(client).branches, figures(client).resident) == (0, 0)


def test_thousands_of_published_branches_outlive_the_daemon(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    parent = root(cache, PROMPT)
    children = parent.fork(3000)
    for child in children:
        child.publish()
    for child in children[:1500]:
        child.withdraw()
    daemon.stop(signal.SIGKILL)
    daemon.restart()
    assert {each.branch_id for each in cache.branches()} == {child.id for child in children[1500:]}
    assert reads(cache.attach_branch(children[2999].id), PROMPT)
    assert figures(client).branches == 1500


def test_a_daemon_killed_while_a_branch_grows_leaves_it_as_it_was(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    branch = root(cache, PROMPT)
    branch.publish()
    mine = root(cache, [5] * 6)
    with pytest.raises(nexuskv.Disconnected):
        _append_while_it_dies(daemon, branch)
    daemon.restart()
    assert reads(branch, PROMPT)
    with pytest.raises(nexuskv.UnknownBranch):
        mine.append([1])
    grow(branch, [1])
    assert reads(branch, [*PROMPT, 1])
    until(lambda: figures(client).writing == 0, "the slots come back")


def _append_while_it_dies(daemon: Daemon, branch: nexuskv.Branch) -> None:
    with branch.append([1] * 9) as pages:
        fill(pages, branch, [1] * 9)
        daemon.stop(signal.SIGKILL)


def test_the_log_that_was_being_written_is_taken_as_far_as_it_is_whole(
    daemon: Daemon, cache: nexuskv.Cache
) -> None:
    first = root(cache, PROMPT)
    first.publish()
    daemon.stop(signal.SIGKILL)
    with open(f"/dev/shm/nexuskv-{daemon.instance}-branches", "ab") as log:  # noqa: PTH123  # a plain file
        log.write(os.urandom(50))
    daemon.restart()
    assert reads(first, PROMPT)
    first.fork().publish()
    daemon.stop(signal.SIGKILL)
    daemon.restart()
    assert len(cache.branches()) == 2


def test_a_fresh_daemon_knows_no_branches(daemon: Daemon, cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    branch.publish()
    daemon.stop(signal.SIGKILL)
    daemon.restart("--fresh")
    assert cache.branches() == []
    with pytest.raises(nexuskv.UnknownBranch):
        branch.fork()


def descendant(pipe: Connection, published: nexuskv.Branch, private: nexuskv.Branch) -> None:
    """What a forked child may do with its parent's branches."""
    try:
        private.fork()
    except nexuskv.UnknownBranch:
        pipe.send("unknown")
    child = published.fork()
    grow(child, [8])
    pipe.send(reads(child, [*PROMPT, 8]))
    child.drop()
    published.drop()


def test_a_forked_process_has_published_branches_and_no_others(daemon: Daemon) -> None:
    client = daemon.client()
    cache = client.open(KIND, model="m")
    published, private = root(cache, PROMPT), root(cache, [1] * 8)
    published.publish()
    with processes.running(descendant, published, private, context=processes.FORK) as child:
        assert child.receive() == "unknown"
        assert child.receive() is True
        assert child.join() == 0
    assert reads(private, [1] * 8)
    until(lambda: published.cow_ref_cnt == 2, "the branch is let go")
    client.close()


def test_closing_the_client_ends_its_branches(daemon: Daemon, client: nexuskv.Client) -> None:
    with daemon.client() as other:
        cache = other.open(KIND, model="m")
        branch = root(cache, PROMPT)
        branch.fork()
    with pytest.raises(nexuskv.Closed):
        branch.fork()
    branch.drop()
    client.open(KIND, model="m")
    until(lambda: figures(client).branches == 0, "the branches are let go")
