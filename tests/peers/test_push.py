"""Pages that one engine computed are pushed to the host of another: prefill here, decode there."""

from multiprocessing.connection import Connection

import pytest

import nexuskv
from tests.support import pages
from tests.support.hosts import opened, pair
from tests.support.processes import running as child


def _decode(pipe: Connection, address: str, keys: list[bytes]) -> None:
    with nexuskv.connect(address) as client:
        pipe.send("ready")
        assert pipe.recv() == "go"
        pipe.send(pages.verified(opened(client, kib=256), keys))


def test_prefill_on_one_host_and_decode_on_the_other() -> None:
    with pair() as (first, second), second.client() as prefill:
        cache = opened(prefill, kib=256)
        keys = pages.keys(cache, 30)
        with child(_decode, first.daemon.address, keys) as decode:
            assert decode.receive() == "ready"
            pages.put(cache, keys)
            there = prefill.push(keys, first.address)
            assert (there.pages, there.reason) == (30, "")
            decode.send("go")
            assert decode.receive() == 30


def test_a_push_may_go_to_who_dialled_and_by_name() -> None:
    with pair() as (first, second), first.client() as prefill, second.client() as decode:
        cache = opened(prefill, kib=256)
        keys = pages.keys(cache, 5)
        pages.put(cache, keys)
        assert prefill.push(keys, second.daemon.instance).pages == 5
        assert prefill.push(keys, second.daemon.instance).pages == 5  # nothing moves the second time
        assert pages.verified(opened(decode, kib=256), keys) == 5


def test_what_is_not_resident_is_not_pushed() -> None:
    with pair() as (first, second), second.client() as client:
        cache = opened(client, kib=256)
        keys = pages.keys(cache, 5)
        assert client.push(keys, first.address).pages == 0
        pages.put(cache, keys[:2])
        assert client.push(keys, first.address).pages == 2


def test_a_peer_that_is_none_is_refused() -> None:
    with pair() as (_, second), second.client() as client:
        cache = opened(client, kib=256)
        keys = pages.keys(cache, 2)
        pages.put(cache, keys)
        with pytest.raises(nexuskv.BadRequest, match="no connected peer"):
            client.push(keys, "nobody")
        with pytest.raises(nexuskv.BadRequest, match="no connected peer"):
            client.push(keys, "tcp://127.0.0.1:1", within=0.5)


def test_a_full_host_takes_what_fits_and_says_why() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        cache = opened(here, kib=256)
        keys = pages.keys(cache, 100)
        pages.put(cache, keys)
        held = pages.keys(opened(there, kib=256), 250, branch=3)
        pages.put(opened(there, kib=256), held)
        with opened(there, kib=256).match(held):
            taken = here.push(keys, first.address)
            assert taken.pages < 100
            assert "no room" in taken.reason
