"""Pages of another host are pulled, checked and found here, byte for byte."""

import nexuskv
from tests.support import pages
from tests.support.hosts import pair

MODEL = "model@1"


def opened(client: nexuskv.Client, kib: int = 64) -> nexuskv.Cache:
    return client.open(pages.small(kib=kib), model=MODEL)


def test_a_match_that_fetches_finds_what_another_host_has() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 20)
        pages.put(theirs, keys)
        assert pages.verified(ours, keys) == 0
        with ours.match(keys, fetch=True) as hit:
            assert len(hit) == 20
            assert pages.intact(hit)
        assert pages.verified(ours, keys) == 20
