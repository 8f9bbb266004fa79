"""A pull that is slower than computing is not made, and says so."""

import nexuskv
from tests.support import pages
from tests.support.hosts import pair, peer

MODEL = "model@1"


def opened(client: nexuskv.Client) -> nexuskv.Cache:
    return client.open(pages.small(kib=256), model=MODEL)


def test_what_computes_quicker_is_not_pulled() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 40)
        pages.put(theirs, keys)
        assert ours.fetch(keys[:20]).pages == 20
        known = peer(here, first.address)
        assert known is not None
        assert known.path == "tcp"
        assert known.bandwidth > 0
        assert known.latency > 0
        ours.declare_cost(1e-15)
        came = ours.fetch(keys)
        assert came.pages == 0
        assert "computing is quicker" in came.reason
        ours.declare_cost(0.0, 1.0)  # attention over a long context
        assert ours.fetch(keys).pages == 20


def test_what_nobody_measured_yet_is_pulled() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 3)
        pages.put(theirs, keys)
        ours.declare_cost(1e-15)
        assert ours.fetch(keys).pages == 3
