"""What tests of other hosts have in common."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.hosts import Host, running
from tests.support.impostor import Impostor


@pytest.fixture(name="host")
def one_host() -> Iterator[Callable[[Impostor], Host]]:
    """Starts daemons that have an impostor for a peer, and sees to their end."""
    hosts: list[Host] = []

    def start(other: Impostor) -> Host:
        hosts.append(Host(peers=[other.address]))
        hosts[-1].daemon.wait_ready()
        return hosts[-1]

    yield start
    with running(*hosts):
        pass
