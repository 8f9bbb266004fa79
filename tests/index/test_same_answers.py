"""Asked or read in shared memory: the answers about pages are the same, for every kind of state."""

from collections.abc import Iterator

import pytest

import nexuskv
from nexuskv import Descriptor
from tests.support.daemon import Daemon, running
from tests.support.pages import fill, intact, keys, put, small

KINDS = {
    "mha": small("mha", kib=4),
    "mla": nexuskv.mla(
        "mla", dtype="float16", latent_dim=112, rope_dim=16, page_tokens=16, engine_family="VLLM"
    ),
    "mamba2": nexuskv.mamba2(
        "mamba2", heads=4, head_dim=8, state_size=32, dtype="float16", page_tokens=16, engine_family="VLLM"
    ),
}
Answer = tuple[int, int, int, list[bytes], int, list[nexuskv.PageStatus]]
"""Of match: start, stop, tokens, keys; of lookup: pages; of status: state and reason."""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "128KiB", memory="1MiB") as daemon:
        yield daemon


@pytest.fixture(params=[True, False], ids=["shared", "asked"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[nexuskv.Client]:
    with daemon.client(shared=request.param) as client:
        yield client


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Descriptor:
    descriptor: Descriptor = request.param
    return descriptor


def answer(cache: nexuskv.Cache, wanted: list[bytes]) -> Answer:
    with cache.match(wanted) as hit:
        assert intact(hit)
        found = hit.start, hit.stop, hit.tokens, [page.key for page in hit]
        assert [handle.length for handle in hit.handles] == [cache.descriptor.page_bytes] * len(hit)
    return *found, cache.lookup(wanted), cache.status(wanted)


def both(daemon: Daemon, kind: Descriptor, wanted: list[bytes], salt: str = "") -> Answer:
    """The one answer that both ways give."""
    with daemon.client(shared=True) as reads, daemon.client(shared=False) as asks:
        answers = [answer(client.open(kind, model="m", salt=salt), wanted) for client in (reads, asks)]
    assert answers[0] == answers[1]
    return answers[0]


def test_present_evicted_being_written_and_never_seen(daemon: Daemon, kind: Descriptor) -> None:
    with daemon.client() as client:
        cache = client.open(kind, model="m")
        wanted = keys(cache, 8)
        checkpoints = kind is KINDS["mamba2"]
        assert both(daemon, kind, wanted)[:5] == (0, 0, 0, [], 0)
        put(cache, wanted[:5])
        client.evict(nbytes=1)
        with cache.reserve(wanted[5:7], parent=b"" if checkpoints else wanted[3]) as pages:
            *found, status = both(daemon, kind, wanted)
            fill(pages)
            resident = [at for at, (state, _) in enumerate(status) if state == "present"]
            assert len(resident) == 4
            last = resident[-1]
            start = last if checkpoints else 0
            assert found == [
                start, last + 1, (last + 1) * kind.page_tokens, wanted[start : last + 1], last + 1
            ]  # fmt: skip
            (gone,) = (at for at in range(5) if at not in resident)
            assert status[gone] == ("absent", "evicted")
            assert [state for state, _ in status[5:]] == ["being_written", "being_written", "absent"]
        assert both(daemon, kind, wanted)[1] == (7 if checkpoints else gone)


def test_parts_of_chains(daemon: Daemon, kind: Descriptor) -> None:
    with daemon.client() as client:
        cache = client.open(kind, model="m")
        there, absent = keys(cache, 4), keys(cache, 4, branch=1)
        put(cache, there)
    for wanted in ([], absent[:1], [*there, *absent], there[2:], [*there[:1], *absent]):
        both(daemon, kind, wanted)
    if kind is KINDS["mamba2"]:  # a chain may have holes
        assert both(daemon, kind, [*absent, *there, *absent])[:2] == (7, 8)
        assert both(daemon, kind, there[::-1])[:2] == (3, 4)


def test_pages_of_another_descriptor(daemon: Daemon, kind: Descriptor, client: nexuskv.Client) -> None:
    theirs = client.open(small("another", kib=8), model="m")
    cache = client.open(kind, model="m")
    foreign, own = keys(theirs, 3), keys(cache, 2)
    put(theirs, foreign)
    put(cache, own)

    for wanted in (foreign, [*own, *foreign]):
        *found, status = answer(cache, wanted)
        expected = ["present" if key in own else "belongs to descriptor another" for key in wanted]
        assert [reason or state for state, reason in status] == expected
        stop = expected.count("present")
        assert (found[1], found[4]) == (stop, stop)
    with pytest.raises(nexuskv.BadRequest, match="another descriptor"):
        cache.reserve(foreign)
    figures = {arena.descriptor_id: arena for arena in client.stats().arenas}[kind.descriptor_id]
    assert figures.free + figures.resident == figures.slots


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "asked"])
def test_pages_of_a_descriptor_that_this_client_does_not_know(
    daemon: Daemon, kind: Descriptor, shared: bool
) -> None:
    with daemon.client() as other, daemon.client(shared=shared) as client:
        theirs, cache = other.open(small("another", kib=8), model="m"), client.open(kind, model="m")
        put(theirs, keys(theirs, 3))
        assert answer(cache, keys(theirs, 3))[:5] == (0, 0, 0, [], 0)
        assert put(cache, keys(cache, 3)) == 3
        assert answer(cache, keys(cache, 3))[1] == 3


def test_a_chain_of_more_keys_than_a_message_takes(kind: Descriptor) -> None:
    with running("--index-entries", "20000", memory="32MiB") as roomy, roomy.client() as client:
        cache = client.open(kind, model="m")
        wanted = keys(cache, 5000)
        put(cache, wanted)
        found = both(roomy, kind, [*wanted, *keys(cache, 200, branch=1)])
        assert (found[1], found[4]) == (5000, 5000)


def test_a_key_that_is_none(client: nexuskv.Client, kind: Descriptor) -> None:
    cache = client.open(kind, model="m")
    for call in (cache.match, cache.lookup, cache.status, cache.reserve):
        with pytest.raises(nexuskv.BadRequest, match=r"length|32"):
            call([b"short"])
