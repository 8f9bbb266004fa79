"""A client process that may open no more files: it is told so, and goes on once it may."""

import os
import resource
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

import nexuskv
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import keys, put, small, verified

PAGES = small(kib=4)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "64KiB", memory="1MiB") as daemon:
        yield daemon


def starved(pipe: Connection, address: str) -> None:
    """An engine that has no descriptor left when it first reads or writes."""
    with nexuskv.connect(address) as client:
        cache = client.open(PAGES, model="m")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for call, branch in ((cache.match, 1), (cache.reserve, 2)):
            cache.lookup(keys(cache, 1))  # connected
            lowest_free = os.dup(0)
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            with pytest.raises(nexuskv.LocalError, match="no file descriptor left: close some, or raise"):
                call(keys(cache, 3, branch))
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        pipe.send((verified(cache, keys(cache, 3, branch=1)), put(cache, keys(cache, 3, branch=2))))


def test_a_client_without_descriptors_is_told_and_recovers(daemon: Daemon) -> None:
    with daemon.client() as client:
        cache = client.open(PAGES, model="m")
        put(cache, keys(cache, 3, branch=1))
        with processes.running(starved, daemon.address) as child:
            assert child.receive() == (3, 3)

        assert client.stats().tenants[0].pinned == 0
