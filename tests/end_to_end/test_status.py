"""What match, lookup and status say of pages: present, being written, absent and why."""

from collections.abc import Iterator

import pytest

import nexuskv
from nexuskv import PageStatus
from tests.end_to_end.conftest import PAGES
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, put, small, verified

PRESENT = PageStatus("present", "")
EVICTED = PageStatus("absent", "evicted")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "64KiB", memory="256KiB") as daemon:
        yield daemon


def test_nothing_asked_is_nothing_found(cache: nexuskv.Cache) -> None:
    with cache.match([]) as hit:
        assert (len(hit), hit.tokens, list(hit), hit.handles) == (0, 0, [], [])
    with cache.reserve([]) as pages:
        assert len(pages) == 0
    assert cache.lookup([]) == 0
    assert cache.status([]) == []
    assert cache.keys([1, 2, 3]) == []  # no full page


def test_never_seen(cache: nexuskv.Cache) -> None:
    state, reason = cache.status(keys(cache, 1))[0]

    assert state == "absent"
    assert reason.startswith("never seen")


def test_being_written_by_this_or_another_client(daemon: Daemon, cache: nexuskv.Cache) -> None:
    wanted = keys(cache, 3)
    with daemon.client() as other, cache.reserve(wanted) as pages:
        theirs = other.open(PAGES, model="m")
        pages[0].commit()
        for each in (cache, theirs):
            states = [status.state for status in each.status(wanted)]
            assert states == ["present", "being_written", "being_written"]
        with theirs.match(wanted) as hit:
            assert len(hit) == 1  # nobody reads what is not committed
        with theirs.reserve(wanted) as none:
            assert (len(none), none.busy) == (0, 2)

    assert cache.status(wanted) == [PRESENT] * 3


def test_evicted(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    wanted = keys(cache, 3)
    put(cache, wanted)
    client.evict(nbytes=1)

    assert cache.status(wanted) == [PRESENT, PRESENT, EVICTED]
    assert cache.lookup(wanted) == 2
    assert put(cache, wanted) == 1
    assert cache.status(wanted) == [PRESENT] * 3


def test_of_another_descriptor(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    other = client.open(small("the-other-one", kib=8), model="m")
    put(other, keys(other, 2))

    said = cache.status([*keys(other, 2), *keys(cache, 1)])
    assert said[0] == said[1] == PageStatus("absent", "belongs to descriptor the-other-one")
    assert said[2].reason.startswith("never seen")


def test_many_keys_of_another_descriptor_with_a_long_name(daemon: Daemon) -> None:
    with running("--segment-bytes", "1MiB", memory="4MiB") as roomy, roomy.client() as client:
        name = "long/" * 30
        other = client.open(small(name, kib=1), model="m")
        cache = client.open(PAGES, model="m")
        wanted = keys(other, 4000)
        put(other, wanted)

        assert set(cache.status(wanted)) == {PageStatus("absent", f"belongs to descriptor {name}")}


def test_models_and_salts_share_no_page(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    put(cache, keys(cache, 2))
    for stranger in (client.open(PAGES, model="n"), client.open(PAGES, model="m", salt="s")):
        assert not set(keys(stranger, 2)) & set(keys(cache, 2))
        assert stranger.lookup(keys(stranger, 2)) == 0


def test_engines_of_two_families_share_pages_of_the_same_form(client: nexuskv.Client) -> None:
    def described(name: str, family: str) -> nexuskv.Descriptor:
        return nexuskv.mha(name, layers=1, kv_heads=2, head_dim=8, dtype="float16", engine_family=family)

    one = client.open(described("one", "VLLM"), model="m")
    two = client.open(described("two", "SGLANG"), model="m")
    put(one, keys(one, 2))

    assert verified(two, keys(one, 2)) == 2


def test_lookup_and_status_refresh_nothing(cache: nexuskv.Cache) -> None:
    old, new = keys(cache, 16, 1), keys(cache, 16, 2)
    put(cache, old)
    put(cache, new)
    for _ in range(3):
        cache.lookup(old)
        cache.status(old)
    for branch in range(3, 6):
        put(cache, keys(cache, 16, branch))

    assert cache.lookup(old) == 0
    assert cache.lookup(new) == 16


def test_the_same_id_with_other_content_names_the_fields(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    changed = small(PAGES.descriptor_id, kib=8)
    with daemon.client() as other:
        for each in (client, other):
            with pytest.raises(nexuskv.DescriptorConflict, match=r"dims\.kv_heads"):
                each.open(changed, model="m")
    assert put(cache, keys(cache, 1)) == 1


def test_a_key_that_is_none(cache: nexuskv.Cache) -> None:
    for call in (cache.match, cache.lookup, cache.status, cache.reserve):
        with pytest.raises(nexuskv.BadRequest, match="32"):
            call([b"short"])
