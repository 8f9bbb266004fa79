"""What the end-to-end tests share: a client of the daemon that their module starts, and a cache of small pages."""

from collections.abc import Iterator

import pytest

import nexuskv
from tests.support.daemon import Daemon
from tests.support.pages import small

PAGES = small(kib=4)


@pytest.fixture
def client(daemon: Daemon) -> Iterator[nexuskv.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def cache(client: nexuskv.Client) -> nexuskv.Cache:
    return client.open(PAGES, model="m")
