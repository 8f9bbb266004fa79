"""A client that does nothing but hit, in a process of its own, while its daemon dies and comes back.

Owns the loop and the tally. Every page it asks for is resident, so each hit that does not find its page is a failure.
"""

import itertools
import time

import msgspec

import nexuskv
from nexuskv.bench import companion
from nexuskv.bench.setting import MODEL, descriptor

HITS_AT_ONCE = 256
REST = 0.001
"""Seconds between bursts: the daemon needs a CPU too, and there may be few."""


class Orders(msgspec.Struct):
    """Where the daemon is, and keys of resident pages."""

    address: str
    page_bytes: int
    keys: list[bytes]


class Tally(msgspec.Struct):
    """Hits that found their page, and those that did not or that raised an error."""

    hits: int = 0
    failed: int = 0


def main() -> None:
    """Hits one page after another until told to stop."""
    told = companion.orders(Orders)
    tally = Tally()
    with nexuskv.connect(told.address) as client:
        cache = client.open(descriptor(told.page_bytes), model=MODEL)
        keys = itertools.cycle(told.keys)
        _hit(cache, keys, tally)
        companion.under_way()
        while not companion.told_to_stop():
            _hit(cache, keys, tally)
            time.sleep(REST)
    companion.reply(tally)


def _hit(cache: nexuskv.Cache, keys: "itertools.cycle[bytes]", tally: Tally) -> None:
    for key in itertools.islice(keys, HITS_AT_ONCE):
        try:
            with cache.match([key]) as hit:
                found = len(hit)
        except nexuskv.NexusError:
            found = 0
        tally.hits += found
        tally.failed += 1 - found


if __name__ == "__main__":
    main()
