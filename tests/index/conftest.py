"""What the tests of the shared index share: a daemon of 64 pages in segments of 16, and a client."""

from collections.abc import Iterator

import pytest

import nexuskv
from tests.support.daemon import Daemon, running
from tests.support.pages import small

PAGES = small(kib=4)
SLOTS = 64


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "64KiB", memory="256KiB") as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Iterator[nexuskv.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def cache(client: nexuskv.Client) -> nexuskv.Cache:
    return client.open(PAGES, model="m")
