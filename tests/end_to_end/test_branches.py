"""A tree of contexts on a real daemon: forks move nothing, appends go their own ways, all of it is read in place."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

import nexuskv
from nexuskv.contract import Descriptor, Flag
from nexuskv.harness.residence import Witness
from tests.support.daemon import Daemon, running
from tests.support.figures import figures
from tests.support.pages import keys, put, small
from tests.support.trees import S, fill, grow, holds, reads, root, tree, value

PROMPT = list(range(100, 110))
"""Two full pages and a tail of two tokens."""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="64MiB") as daemon:
        yield daemon


@pytest.fixture(params=[True, False], ids=["shared", "asked"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[nexuskv.Client]:
    with daemon.client(shared=request.param) as client:
        yield client


@pytest.fixture
def cache(client: nexuskv.Client) -> nexuskv.Cache:
    return client.open(tree(), model="m")


def test_a_child_begins_as_its_parent_is_and_goes_its_own_way(cache: nexuskv.Cache) -> None:
    parent = root(cache, PROMPT)
    left, right = parent.fork(2)
    grow(left, [1, 2, 3])
    grow(right, [4])
    leaf = left.fork()
    grow(leaf, [5] * 9)
    grow(parent, [6, 7])

    assert reads(parent, [*PROMPT, 6, 7])
    assert reads(left, [*PROMPT, 1, 2, 3])
    assert reads(right, [*PROMPT, 4])
    assert reads(leaf, [*PROMPT, 1, 2, 3, *[5] * 9])
    assert (parent.depth, left.depth, leaf.depth) == (0, 1, 2)
    assert [each.branch_id for each in leaf.lineage()] == [leaf.id, left.id, parent.id]
    assert (parent.cow_ref_cnt, left.cow_ref_cnt, leaf.cow_ref_cnt) == (3, 2, 1)


def test_pages_of_ordinary_hits_are_branched_off_and_branches_are_hit(cache: nexuskv.Cache) -> None:
    chain = keys(cache, 3)
    put(cache, chain)
    with cache.match(chain) as hit:
        branch = cache.branch(chain[: hit.stop])
    assert (branch.tokens, branch.parent_id) == (3 * S, 0)
    grow(branch, [8] * S)

    whole = cache.keys([*[0] * 3 * S, *[8] * S])
    assert whole[:3] == chain
    with cache.match(whole) as hit:
        assert (len(hit), hit.tokens) == (4, 4 * S)
        assert hit[3]["key"][0, 1, 0, 0] == value(3 * S + 1, 8)


def test_reading_a_branch_copies_nothing(daemon: Daemon, cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT).fork()
    grow(branch, [1, 2])
    witness = Witness(daemon.instance)
    with branch.read() as hit:
        arrays = [array for page in hit for array in (page.buffer, page["key"], page["value"])]
        assert all(witness.in_place(array) for array in arrays)
        assert not any(array.flags.writeable for array in arrays)


def test_only_a_tail_that_others_need_is_copied(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    parent = root(cache, PROMPT)
    assert grow(parent, [1]).copied_tokens == 0
    child = parent.fork()
    assert grow(child, [2]).copied_tokens == 3, "the parent ends there"
    assert grow(child, [3]).copied_tokens == 0
    assert grow(parent, [4]).copied_tokens == 0, "the child went elsewhere"
    assert (parent.info().copies, child.info().copies, figures(client).copied) == (0, 1, 1)

    with parent.read() as hit:
        grow(parent, [5] * S)
        assert holds(hit, [*PROMPT, 1, 4])
    assert reads(parent, [*PROMPT, 1, 4, *[5] * S])
    assert reads(child, [*PROMPT, 1, 2, 3])
    assert figures(client).copied == 1, "that tail was full"


def test_a_reader_of_the_tail_keeps_it_as_it_was(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    with branch.read() as hit:
        assert grow(branch, [1]).copied_tokens == 2
        assert holds(hit, PROMPT)
    assert reads(branch, [*PROMPT, 1])
    assert figures(client).copied == 1


def test_token_by_token_no_page_is_made_but_when_one_is_full(
    client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    branch = root(cache, PROMPT)
    tokens = list(PROMPT)
    for token in range(50):
        grow(branch, [token])
        tokens.append(token)
    assert reads(branch, tokens)
    assert (figures(client).resident, figures(client).copied) == (len(tokens) // S, 0)


def test_the_same_tokens_are_computed_once(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    parent = root(cache, PROMPT)
    left, right = parent.fork(2)
    assert len(grow(left, [1] * 20)) == 6
    before = figures(client)
    assert len(grow(right, [1] * 20)) == 0
    assert figures(client).resident == before.resident
    assert reads(right, [*PROMPT, *[1] * 20])


def test_an_append_that_fails_leaves_the_branch_as_it_was(
    client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    branch = root(cache, PROMPT)
    before = figures(client)
    for added in ([1], [1] * 30):
        with contextlib.suppress(ZeroDivisionError), branch.append(added) as pages:
            fill(pages, branch, added)
            raise ZeroDivisionError
        assert reads(branch, PROMPT)
        assert (figures(client).resident, figures(client).free) == (before.resident, before.free)
    with pytest.raises(nexuskv.Closed):
        pages[0].buffer[:] = 1
    grow(branch, [2])
    assert reads(branch, [*PROMPT, 2])


def test_while_an_append_is_open_the_context_before_it_is_read(cache: nexuskv.Cache) -> None:
    branch = root(cache, PROMPT)
    child = branch.fork()
    with child.append([1] * 5) as pages:
        fill(pages, child, [1] * 5)
        assert reads(child, PROMPT)
    with child.append([2]) as pages:
        assert (pages[0].rows, pages[0].tokens) == (slice(3, 4), range(15, 16))
        assert pages[0]["key"][0, 2, 0, 0] == value(14, 1), "the tail is in the page that grows"
        fill(pages, child, [2])
        with child.read() as hit:
            assert holds(hit, [*PROMPT, 1, 1])
    assert reads(child, [*PROMPT, *[1] * 5, 2])


def test_eviction_takes_nothing_that_a_branch_needs(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    branch = root(cache, [1] * 50)
    stray = root(cache, [2] * 50)
    stray.drop()
    client.evict(everything=True)
    assert figures(client).resident == 13
    assert reads(branch, [1] * 50)

    branch.drop()
    client.evict()
    assert (figures(client).resident, figures(client).branches) == (0, 0)


def test_dropping_a_parent_keeps_what_its_children_need(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    parent = root(cache, PROMPT)
    child = parent.fork()
    grow(parent, [1] * 40)
    parent.drop()
    parent.drop()
    client.evict()

    assert reads(child, PROMPT)
    assert figures(client).resident == 3
    assert [each.cow_ref_cnt for each in child.lineage()] == [1, 1]
    assert child.parent_id == parent.id


def test_a_branch_ends_with_its_with_and_with_its_object(
    client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    with root(cache, PROMPT) as branch:
        branch.fork()
        assert branch.cow_ref_cnt == 1, "nobody kept the child"
    with pytest.raises(nexuskv.Closed, match="was dropped here"):
        branch.fork()
    assert figures(client).branches == 0


def test_ten_thousand_branches_cost_their_own_tips_and_nothing_else() -> None:
    with running("--index-entries", "12000", memory="64MiB") as daemon, daemon.client() as client:
        cache = client.open(tree(kib=1), model="m")
        parent = root(cache, [1] * 40)
        before = figures(client)
        children = parent.fork(10_000)
        there = figures(client)
        assert (there.resident, there.free, there.bytes) == (before.resident, before.free, before.bytes)
        assert (there.branches, there.branch_tips) == (10_001, 1)
        assert len({child.id for child in children}) == 10_000
        assert parent.cow_ref_cnt == 10_001

        for token, child in enumerate(children):
            grow(child, [token])
        there = figures(client)
        assert (there.resident, there.branch_tips, there.copied) == (before.resident + 10_000, 10_001, 0)
        taken = there.slots - there.free - (before.slots - before.free)
        assert taken * there.slot_bytes == 10_000 * 1024, "a tip of 1 KiB for each, and no byte more"
        assert reads(children[9_999], [*[1] * 40, 9_999])
        nexuskv.drop_all(children)
        client.evict()
        left = figures(client)
        assert (left.resident, left.branches, parent.cow_ref_cnt) == (before.resident, 1, 1)


def test_the_valid_rows_are_copied_in_every_layout(client: nexuskv.Client) -> None:
    kinds: list[Descriptor] = [
        nexuskv.mha("hnd", layers=2, kv_heads=2, head_dim=8, dtype="float32", dimension_order="HND",
                    page_tokens=S, engine_family="VLLM", compatibility_flags=[*Flag]),
        nexuskv.mla("mla", layers=3, page_tokens=S, dtype="bfloat16", engine_family="SGLANG",
                    compatibility_flags=[*Flag]),
        small("flat", kib=4),
    ]  # fmt: skip
    noise = np.random.default_rng(3)
    for kind in kinds:
        cache = client.open(kind, model="m")
        parent = cache.branch([])
        axes = {spec.name: spec.shape.index("page_tokens") for spec in kind.tensor_specs}
        with parent.append([1, 2, 3]) as (page,):
            page.buffer[...] = noise.integers(0, 256, page.buffer.nbytes, np.uint8)
        child = parent.fork()
        with child.append([4]) as pages:
            assert pages.copied_tokens == 3
        with parent.read() as one, child.read() as other:
            for name, axis in axes.items():
                valid = (slice(None),) * axis + (slice(0, 3),)
                assert one[0][name][valid].tobytes() == other[0][name][valid].tobytes()
        parent.drop()
        child.drop()


def test_a_long_context_is_branched_and_attached_to(client: nexuskv.Client) -> None:
    cache = client.open(small("tiny", kib=1, page_tokens=4), model="m")
    chain = keys(cache, 10_000)
    put(cache, chain)
    parent = cache.branch(chain)
    parent.publish()
    with cache.attach_branch(parent.id) as again:
        child = again.fork()
        with child.append([5]):
            pass
        assert child.tokens == 40_001
        with child.read() as hit:
            assert (len(hit), hit.tokens) == (10_001, 40_001)
