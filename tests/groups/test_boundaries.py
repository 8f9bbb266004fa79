"""Boundaries of a group through a real daemon: found, written and evicted as a whole, in both ways of asking."""

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nexuskv
from nexuskv import contract
from tests.groups.conftest import ATTENTION, CHECKPOINT, HYBRID, INDEXER, WINDOW
from tests.support.boundaries import boundary_keys, fill_boundary, put_boundaries, verified_boundary
from tests.support.daemon import Daemon, running
from tests.support.pages import fill, put


def test_another_client_finds_the_boundary_with_the_pages_it_needs(
    daemon: Daemon, group: nexuskv.Group
) -> None:
    keys = group.keys(range(30))
    assert group.tokens == 8
    assert [len(own) for own in keys] == [6, 6, 3]
    with group.reserve(keys) as boundaries:
        assert [boundary.number for boundary in boundaries] == [1, 2, 3]
        for boundary in boundaries:
            assert [len(pages) for pages in boundary] == [2, 2, 1]
            fill_boundary(boundary)

    with daemon.client() as other:
        theirs = other.open_group(HYBRID, model="m")
        with theirs.match(theirs.keys(range(100))) as hit:
            assert (hit.boundary, hit.tokens, len(hit)) == (3, 24, 3)
            assert [(own.start, own.stop) for own in hit] == [(0, 6), (0, 6), (2, 3)]
            assert hit[2][0].key == keys[2][2]
            assert not hit[0][0]["key"].flags.writeable
        assert verified_boundary(theirs, theirs.keys(range(100))) == 3
        assert theirs.lookup(theirs.keys(range(100))) == 3
        assert verified_boundary(theirs, theirs.keys(range(1, 100))) == 0
        with pytest.raises(nexuskv.Closed):
            hit[0][0].buffer  # noqa: B018  # it is the reading that fails


def test_pages_are_shared_with_the_caches_of_the_members(
    client: nexuskv.Client, group: nexuskv.Group
) -> None:
    keys = boundary_keys(group, 3)
    attention = client.open(ATTENTION, model="m")
    assert put(attention, keys[0][:3]) == 3
    with group.reserve(keys) as boundaries:
        assert [[page.position for page in boundary[0]] for boundary in boundaries] == [[], [3], [4, 5]]
        for boundary in boundaries:
            fill_boundary(boundary)
    assert verified_boundary(group, keys) == 3
    assert attention.lookup(keys[0]) == 6
    assert put_boundaries(group, keys) == 0


def test_a_page_without_its_indexer_page_is_no_hit(client: nexuskv.Client, group: nexuskv.Group) -> None:
    keys = boundary_keys(group, 3)
    for descriptor, own, pages in ((ATTENTION, keys[0], 6), (INDEXER, keys[1], 3), (CHECKPOINT, keys[2], 3)):
        put(client.open(descriptor, model="m"), own[:pages])
    assert verified_boundary(group, keys) == group.lookup(keys) == 1
    states = group.status(keys)
    assert [status.state for status in states] == ["present", "absent", "absent"]
    assert states[1].reason.startswith("indexer: never seen")


@pytest.mark.parametrize("first", ["attention", "indexer", "checkpoint"])
def test_a_boundary_is_evicted_as_a_whole_whichever_member_must_go(
    client: nexuskv.Client, group: nexuskv.Group, first: str
) -> None:
    keys = boundary_keys(group, 4)
    put_boundaries(group, keys)
    evicted = client.evict(first, 1)
    assert evicted.pages == 5
    assert [cache.lookup(own) for cache, own in zip(group.caches, keys, strict=True)] == [6, 6, 3]
    assert verified_boundary(group, keys) == 3
    assert group.status(keys)[3] == ("absent", "attention: evicted")
    assert client.evict(first).pages == 15
    assert [arena.resident for arena in client.stats().arenas] == [0, 0, 0]


@pytest.mark.parametrize("memory", ["4MiB", "64MiB"])
def test_a_small_budget_has_room_for_every_member(memory: str) -> None:
    with running(memory=memory) as daemon, daemon.client() as client:
        group = client.open_group(HYBRID, model="m")
        assert put_boundaries(group, boundary_keys(group, 3)) == 3


def test_a_hit_keeps_its_boundaries(client: nexuskv.Client, group: nexuskv.Group) -> None:
    keys = boundary_keys(group, 4)
    put_boundaries(group, keys)
    with group.match([own[: len(own) // 2] for own in keys]) as hit:
        assert hit.boundary == 2
        for name in ("checkpoint", "attention", "indexer"):
            client.evict(name)
        assert group.lookup(keys) == 2
        client.evict(everything=True)
        assert group.lookup(keys) == 0
        assert [arena.retiring for arena in client.stats().arenas] == [4, 4, 1]
    assert client.evict().retiring == 0
    assert put_boundaries(group, keys) == 4


def test_an_exception_gives_everything_back(client: nexuskv.Client, group: nexuskv.Group) -> None:
    keys = boundary_keys(group, 3)
    boundaries = group.reserve(keys)
    with contextlib.suppress(ZeroDivisionError), boundaries:
        fill_boundary(boundaries[0])
        boundaries[0].commit()
        fill_boundary(boundaries[1])
        raise ZeroDivisionError
    assert verified_boundary(group, keys) == 1
    assert [(arena.resident, arena.writing) for arena in client.stats().arenas] == [(2, 0), (2, 0), (1, 0)]
    with pytest.raises(nexuskv.Closed):
        boundaries[1][0][0].buffer  # noqa: B018  # it is the reading that fails
    assert put_boundaries(group, keys) == 2


def test_what_somebody_else_is_writing_is_busy(daemon: Daemon, group: nexuskv.Group) -> None:
    keys = boundary_keys(group, 3)
    with daemon.client() as other:
        theirs = other.open_group(HYBRID, model="m")
        with theirs.reserve([own[: len(own) // 3] for own in keys]) as first:
            with group.reserve(keys) as mine:
                assert (len(mine), mine.busy) == (0, 3)
            assert {status.state for status in group.status(keys)[:1]} == {"being_written"}
            fill_boundary(first[0])
    with group.reserve(keys) as mine:
        assert ([boundary.number for boundary in mine], mine.busy) == ([2, 3], 0)
        for boundary in mine:
            fill_boundary(boundary)
    assert verified_boundary(group, keys) == 3


def test_more_boundaries_than_fit_are_refused_and_leave_nothing(
    client: nexuskv.Client, group: nexuskv.Group
) -> None:
    with pytest.raises(nexuskv.ArenaFull):
        group.reserve(boundary_keys(group, 3000))
    assert all(arena.writing == arena.resident == 0 for arena in client.stats().arenas)
    assert put_boundaries(group, boundary_keys(group, 20)) == 20


def test_old_boundaries_make_room_for_new_ones(client: nexuskv.Client, group: nexuskv.Group) -> None:
    for branch in range(60):
        keys = boundary_keys(group, 40, branch)
        assert put_boundaries(group, keys) == 40
        assert verified_boundary(group, keys) == 40
    found = [verified_boundary(group, boundary_keys(group, 40, branch)) for branch in range(60)]
    assert 0 in found
    assert found[-1] == 40
    resident = [arena.resident for arena in client.stats().arenas]
    assert resident[0] == resident[1] == 2 * resident[2] == 2 * sum(found)


def test_long_sequences_take_several_messages() -> None:
    with running("--segment-bytes", "1MiB", memory="16MiB") as daemon:
        for shared in (True, False):
            with daemon.client(shared=shared) as client:
                group = client.open_group((ATTENTION, CHECKPOINT), model="m", salt=str(shared))
                keys = boundary_keys(group, 3000)
                assert put_boundaries(group, keys) == 3000
                assert verified_boundary(group, keys) == 3000
                assert group.lookup(keys) == 3000


def test_groups_that_are_none(client: nexuskv.Client) -> None:
    with pytest.raises(nexuskv.LocalError, match="no descriptors"):
        client.open_group([], model="m")
    with pytest.raises(nexuskv.LocalError, match="one physical contract"):
        client.open_group([ATTENTION, contract.from_json(_renamed())], model="m")
    with pytest.raises(nexuskv.BadRequest, match="keys of 2 members for a group of 3"):
        client.open_group(HYBRID, model="m").match([[], []])
    far = nexuskv.mamba2(
        "far", heads=1, head_dim=8, state_size=8, page_tokens=40_000, dtype="float16", engine_family="VLLM"
    )
    with pytest.raises(nexuskv.BadRequest, match="40000 tokens and has 10001 pages, 4096 are the most"):
        client.open_group([ATTENTION, far], model="m")
    wide = client.open_group([WINDOW, far], model="m")
    assert wide.lookup([[], []]) == 0  # of use here, if not between hosts
    with pytest.raises(
        nexuskv.BadRequest, match="10001 pages after the one before; other hosts are asked for 4096"
    ):
        wide.fetch([[], []])
    group = client.open_group(HYBRID, model="m")
    with pytest.raises(nexuskv.BadRequest, match=r"32"):
        group.match([[b"short"] * 2, [b"short"] * 2, [b"short"]])


def _renamed() -> bytes:
    return contract.to_json(ATTENTION).replace(b'"attention"', b'"copy"')


def test_keys_of_the_wrong_member_are_misses(group: nexuskv.Group) -> None:
    keys = boundary_keys(group, 2)
    put_boundaries(group, keys)
    assert verified_boundary(group, [keys[1], keys[0], keys[2]]) == 0
    assert verified_boundary(group, [keys[0], keys[1], keys[0]]) == 0


SALTS = itertools.count()


@pytest.fixture
def clients() -> Iterator[tuple[nexuskv.Client, nexuskv.Client]]:
    with (
        running("--segment-bytes", "64KiB", memory="8MiB") as daemon,
        daemon.client() as one,
        daemon.client(shared=False) as other,
    ):
        yield one, other


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_longest_boundary_against_brute_force(
    clients: tuple[nexuskv.Client, nexuskv.Client], data: st.DataObject
) -> None:
    """Whatever pages of whatever members are there: both ways find the largest boundary that all can restore."""
    members = data.draw(st.lists(st.sampled_from([ATTENTION, CHECKPOINT, WINDOW]), min_size=1, unique_by=id))
    salt = str(next(SALTS))
    groups = [client.open_group(members, model="m", salt=salt) for client in clients]
    keys = boundary_keys(groups[0], data.draw(st.integers(1, 6)))
    there: list[set[int]] = []
    for cache, own in zip(groups[0].caches, keys, strict=True):
        if cache.descriptor is ATTENTION:
            chosen = list(range(data.draw(st.integers(0, len(own)))))
        else:
            chosen = sorted(data.draw(st.sets(st.integers(0, len(own) - 1))))
        there.append(set(chosen))
        with cache.reserve([own[page] for page in chosen]) as pages:
            fill(pages)

    def usable(boundary: int) -> bool:
        tokens = boundary * groups[0].tokens
        return all(
            pages.issuperset(_needed(descriptor, tokens))
            for descriptor, pages in zip(members, there, strict=True)
        )

    boundaries = len(keys[0]) * members[0].page_tokens // groups[0].tokens
    expected = max([0, *filter(usable, range(1, boundaries + 1))])
    for group in groups:
        assert group.lookup(keys) == expected
        assert verified_boundary(group, keys) == expected
        with group.match(keys) as hit:
            for each, descriptor in zip(hit, members, strict=True):
                needed = _needed(descriptor, hit.tokens) if hit.tokens else range(0)
                assert range(each.start, each.stop) == needed


def _needed(descriptor: nexuskv.Descriptor, tokens: int) -> range:
    """Pages that the rules name for a boundary at `tokens`."""
    last = tokens // descriptor.page_tokens
    if descriptor is ATTENTION:
        return range(last)
    if descriptor is CHECKPOINT:
        return range(last - 1, last)
    return range(max(0, tokens - 10) // 4, last)
