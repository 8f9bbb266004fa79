"""Reserving ahead: asked for now, granted while other pages are filled, given back when nobody wants it any more."""

import signal
from collections.abc import Iterator

import pytest

import nexuskv
from nexuskv.protocol.messages import MAX_KEYS
from tests.end_to_end.conftest import PAGES
from tests.support.daemon import Daemon, running
from tests.support.figures import figures, writing
from tests.support.pages import fill, keys, put, verified
from tests.support.waiting import until

SLOTS = 64
BATCH = 8


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", f"{SLOTS * 4}KiB", memory=f"{SLOTS * 4}KiB") as daemon:
        yield daemon


def all_slots_come_back(cache: nexuskv.Cache) -> None:
    """Waits until every page of the memory can be written, which a slot that somebody keeps prevents."""
    until(lambda: put(cache, keys(cache, SLOTS)) == SLOTS, "all slots came back")


def test_one_batch_is_filled_while_the_next_is_asked_for(cache: nexuskv.Cache) -> None:
    chains = [keys(cache, BATCH, branch) for branch in range(5)]
    ahead = cache.reserve(chains[0], wait=False)
    for chain in [*chains[1:], []]:
        current, ahead = ahead, cache.reserve(chain, wait=False)
        with current as pages:
            assert [page.position for page in pages] == list(range(BATCH))
            fill(pages)
    assert len(ahead) == 0
    assert [verified(cache, chain) for chain in chains] == [BATCH] * 5


def test_several_are_under_way_and_used_in_any_order(cache: nexuskv.Cache) -> None:
    chains = [keys(cache, BATCH, branch) for branch in range(3)]
    asked = [cache.reserve(chain, wait=False) for chain in chains]
    assert cache.lookup(keys(cache, BATCH, 9)) == 0  # another call meanwhile
    for reservation in reversed(asked):
        with reservation as pages:
            fill(pages)
    assert [verified(cache, chain) for chain in chains] == [BATCH] * 3


def test_more_keys_than_a_message_takes() -> None:
    with running(memory="64MiB") as daemon, daemon.client() as client:
        cache = client.open(PAGES, model="m")
        wanted = keys(cache, MAX_KEYS + 10)
        with cache.reserve(wanted, wait=False) as pages:
            assert len(pages) == len(wanted)
            fill(pages)
        assert verified(cache, wanted) == len(wanted)


def test_a_refusal_comes_with_the_first_use(client: nexuskv.Client, cache: nexuskv.Cache) -> None:
    reservation = cache.reserve(keys(cache, SLOTS + 1), wait=False)
    with pytest.raises(nexuskv.ArenaFull):
        len(reservation)
    assert writing(client) == 0
    reservation.abort()
    with pytest.raises(nexuskv.Closed, match="refused"):
        reservation.commit()

    with pytest.raises(nexuskv.ArenaFull), cache.reserve(keys(cache, SLOTS + 1), wait=False) as pages:
        list(pages)
    assert put(cache, keys(cache, SLOTS)) == SLOTS


def test_what_is_busy_shows_when_it_is_granted(cache: nexuskv.Cache) -> None:
    chain = keys(cache, BATCH)
    first = cache.reserve(chain)
    second = cache.reserve(chain, wait=False)
    assert second.busy == BATCH
    assert len(second) == 0
    second.abort()
    first.abort()


def test_one_that_is_aborted_before_its_grant_gives_its_slots_back(cache: nexuskv.Cache) -> None:
    cache.reserve(keys(cache, BATCH), wait=False).abort()
    all_slots_come_back(cache)


def test_one_that_is_dropped_before_its_grant_warns_and_gives_its_slots_back(cache: nexuskv.Cache) -> None:
    held = [cache.reserve(keys(cache, BATCH), wait=False)]
    with pytest.warns(ResourceWarning, match="a reservation was dropped unfinished"):
        held.clear()
    all_slots_come_back(cache)


def test_an_exception_before_the_grant_gives_its_slots_back(cache: nexuskv.Cache) -> None:
    with pytest.raises(ZeroDivisionError), cache.reserve(keys(cache, BATCH), wait=False):
        _ = 1 // 0
    all_slots_come_back(cache)


def test_the_daemon_dies_before_the_grant(daemon: Daemon, cache: nexuskv.Cache) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    reservation = cache.reserve(keys(cache, BATCH), wait=False)
    daemon.stop(signal.SIGKILL)
    with pytest.raises(nexuskv.Disconnected):
        len(reservation)
    daemon.restart()
    assert put(cache, keys(cache, BATCH)) == BATCH


def test_a_grant_that_comes_too_late_is_given_back(daemon: Daemon) -> None:
    with daemon.client(timeout=0.2) as client:
        cache = client.open(PAGES, model="m")
        daemon.process.send_signal(signal.SIGSTOP)
        reservation = cache.reserve(keys(cache, BATCH), wait=False)
        with pytest.raises(nexuskv.DeadlineExceeded):
            len(reservation)
        daemon.process.send_signal(signal.SIGCONT)
        all_slots_come_back(cache)


def test_a_grant_of_which_the_rest_is_refused_too_late_is_given_back() -> None:
    options = "--segment-bytes", "256KiB"
    with (
        running(*options, memory=f"{(MAX_KEYS + 64) * 4}KiB") as daemon,
        daemon.client(timeout=0.2) as client,
        daemon.client() as other,
    ):
        cache = client.open(PAGES, model="m")
        reservation = cache.reserve(keys(cache, MAX_KEYS + 128), wait=False)
        until(lambda: writing(other) == MAX_KEYS, "the first keys were granted")
        daemon.process.send_signal(signal.SIGSTOP)
        with pytest.raises(nexuskv.DeadlineExceeded):
            len(reservation)
        daemon.process.send_signal(signal.SIGCONT)
        until(lambda: writing(other) == 0, "the slots came back")


def test_one_that_is_aborted_before_its_grant_is_given_back_without_another_call(
    daemon: Daemon, cache: nexuskv.Cache
) -> None:
    with daemon.client() as other:
        cache.lookup(keys(cache, 1))
        with pytest.raises(ZeroDivisionError), cache.reserve(keys(cache, BATCH), wait=False):
            _ = 1 // 0
        until(lambda: writing(other) == 0, "its slots came back")


def test_one_that_is_dropped_before_its_grant_is_given_back_without_another_call(
    daemon: Daemon, client: nexuskv.Client, cache: nexuskv.Cache
) -> None:
    wanted = keys(cache, BATCH)
    put(cache, keys(cache, 1, branch=7))  # there is a segment, so nothing waits for one
    with daemon.client() as other:
        daemon.process.send_signal(signal.SIGSTOP)
        held = [cache.reserve(wanted, wait=False)]
        with pytest.warns(ResourceWarning, match="a reservation was dropped unfinished"):
            held.clear()
        daemon.process.send_signal(signal.SIGCONT)
        until(lambda: figures(other).aborted == BATCH, "its slots came back")
        assert writing(other) == 0
    assert put(cache, wanted) == BATCH
    assert (verified(cache, wanted), figures(client).aborted) == (BATCH, BATCH)


@pytest.mark.parametrize("bad", [b"short", "x" * 32, 7])
def test_what_is_no_key(cache: nexuskv.Cache, bad: object) -> None:
    for wait in (True, False):
        with pytest.raises(nexuskv.BadRequest, match="compute"):
            cache.reserve([bad], wait=wait)  # type: ignore[list-item]  # that is what is tested
    with pytest.raises(nexuskv.BadRequest, match="compute"):
        cache.reserve(None)  # type: ignore[arg-type]  # that is what is tested


def test_a_commit_of_what_was_given_back(daemon: Daemon, cache: nexuskv.Cache) -> None:
    reservation = cache.reserve(keys(cache, BATCH))
    reservation.abort()
    with pytest.raises(nexuskv.Closed, match="given back"):
        reservation.commit()

    reservation = cache.reserve(keys(cache, BATCH))
    daemon.stop(signal.SIGKILL)
    with pytest.raises(nexuskv.Disconnected):
        reservation.commit()
    with pytest.raises(nexuskv.Closed, match="lost"):
        reservation.commit()
