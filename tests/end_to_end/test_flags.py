"""What a descriptor's compatibility flags permit, and what they take away, on a real daemon."""

from collections.abc import Callable, Iterator

import pytest

import nexuskv
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, put, small, verified

TOKENS = list(range(24))


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="64MiB") as daemon:
        yield daemon


@pytest.fixture(params=[True, False], ids=["shared", "asked"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[nexuskv.Client]:
    with daemon.client(shared=request.param) as client:
        yield client


def opened(client: nexuskv.Client, *flags: str) -> nexuskv.Cache:
    return client.open(small("-".join(["only", *sorted(flags)]), flags=flags), model="m")


def test_prefix_reuse_finds_what_is_there(client: nexuskv.Client) -> None:
    cache = opened(client, "PREFIX_REUSE")
    put(cache, cache.keys(TOKENS)[:4])
    assert cache.lookup(cache.keys(TOKENS)) == 4
    assert verified(cache, cache.keys(TOKENS)) == 4
    assert verified(cache, cache.keys(TOKENS[:10])) == 2


def test_exact_reuse_alone_finds_all_of_an_input_or_nothing(client: nexuskv.Client) -> None:
    cache = opened(client, "EXACT_REUSE")
    wanted = cache.keys(TOKENS)
    put(cache, wanted[:4])
    assert cache.lookup(wanted) == 0
    with cache.match(wanted) as hit:
        assert (len(hit), hit.stop, hit.tokens) == (0, 0, 0)
    assert client.stats().tenants[0].pinned == 0
    assert [status.state for status in cache.status(wanted)] == ["present"] * 4 + ["absent"] * 2

    put(cache, wanted)
    assert cache.lookup(wanted) == verified(cache, wanted) == 6


@pytest.mark.parametrize(
    "other",
    [TOKENS[:20], TOKENS[:23], [*TOKENS, 1], [*TOKENS, 1, 2, 3, 4]],
    ids=lambda other: str(len(other)),
)
def test_exact_reuse_alone_serves_no_other_input(client: nexuskv.Client, other: list[int]) -> None:
    cache = opened(client, "EXACT_REUSE")
    put(cache, cache.keys(TOKENS))
    assert verified(cache, cache.keys(other)) == 0
    assert verified(cache, cache.keys(TOKENS)) == 6


def test_without_a_reuse_flag_nothing_is_reused(client: nexuskv.Client) -> None:
    cache = opened(client, "COW_BRANCH")
    wanted = keys(cache, 2)
    put(cache, wanted)
    uses: list[Callable[[], object]] = [
        lambda: cache.match(wanted),
        lambda: cache.match(wanted, fetch=True),
        lambda: cache.lookup(wanted),
        lambda: cache.fetch(wanted),
        lambda: cache.prefetch(wanted),
    ]
    for use in uses:
        with pytest.raises(nexuskv.FlagMissing, match="no EXACT_REUSE and PREFIX_REUSE among its"):
            use()
    with cache.branch(wanted) as branch, branch.read() as hit:
        assert len(hit) == 2, "what it computed for a branch it reads there"


def test_branches_take_their_flag(client: nexuskv.Client) -> None:
    plain, branching = opened(client, "PREFIX_REUSE"), opened(client, "PREFIX_REUSE", "COW_BRANCH")
    assert plain.descriptor.digest == branching.descriptor.digest
    wanted = branching.keys(TOKENS)
    put(plain, wanted)
    with branching.branch(wanted) as branch:
        branch.publish()
        uses: list[Callable[[], object]] = [
            lambda: plain.branch(wanted),
            lambda: plain.branch([]),
            lambda: plain.attach_branch(branch.id),
        ]
        for use in uses:
            with pytest.raises(nexuskv.FlagMissing, match="only-PREFIX_REUSE has no COW_BRANCH among its"):
                use()
        branch.withdraw()
    assert client.stats().arenas[0].branches == 0


def test_a_group_takes_members_whose_prefixes_may_be_reused(client: nexuskv.Client) -> None:
    attention = small("attention", flags=["PREFIX_REUSE"])
    state = nexuskv.mamba2(
        "state", heads=1, head_dim=16, state_size=16, page_tokens=8, dtype="float16", engine_family="VLLM",
        compatibility_flags=["EXACT_REUSE"],
    )  # fmt: skip
    with pytest.raises(nexuskv.FlagMissing, match="state has no PREFIX_REUSE among its compatibility_flags"):
        client.open_group([attention, state], model="m")
