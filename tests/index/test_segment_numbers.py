"""Segments come and go; their numbers do not come again, for a client keeps its mappings by number."""

import signal

from tests.support.daemon import Daemon, running
from tests.support.pages import intact, keys, put, small, verified

CHAIN = 2
ROWS = 256
"""Of the segment directory at least: a number's row is its remainder."""


def segments(daemon: Daemon) -> set[str]:
    return {name for name in daemon.objects() if "-data-" in name}


def test_not_after_a_kill_either() -> None:
    """The quiet client has old segments mapped, and hears of their end only when it asks for something."""
    with (
        running("--segment-bytes", "64KiB", memory="64KiB") as daemon,
        daemon.client() as client,
        daemon.client() as quiet,
    ):
        one, two = (client.open(small(name, kib=kib), model="m") for name, kib in (("one", 32), ("two", 16)))
        read = quiet.open(one.descriptor, model="m")
        seen: set[str] = set()
        for turn in range(4):
            assert put(one, keys(one, CHAIN, turn)) == CHAIN
            assert verified(read, keys(one, CHAIN, turn)) == CHAIN
            now = segments(daemon)
            assert not now & seen
            seen |= now
            assert put(two, keys(two, CHAIN, turn)) == CHAIN  # in the place of the first
            seen |= segments(daemon)
            daemon.stop(signal.SIGKILL)
            daemon.restart()


def test_a_number_whose_row_is_taken_is_passed_over() -> None:
    with running("--segment-bytes", "64KiB", memory="192KiB") as daemon, daemon.client() as client:
        lasting, first, second = (client.open(small(f"d{kib}", kib=kib), model="m") for kib in (32, 16, 64))
        put(lasting, keys(lasting, CHAIN))
        with lasting.match(keys(lasting, CHAIN)) as hit:
            for turn in range(ROWS):
                # Each takes away a segment of the other.
                for cache, pages in ((first, 3 * CHAIN), (second, 1)):
                    assert put(cache, keys(cache, pages, turn)) == pages
                    assert verified(cache, keys(cache, pages, turn)) == pages
                assert intact(hit)
            daemon.stop(signal.SIGKILL)
            daemon.restart()
            assert intact(hit)
            assert verified(lasting, keys(lasting, CHAIN)) == CHAIN
            assert max(int(name.rsplit("-", 1)[1]) for name in segments(daemon)) > ROWS
