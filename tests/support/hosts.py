"""Several daemons that know each other, as on several hosts: each its own instance, memory and port on loopback."""

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence

import nexuskv
from nexuskv.protocol.hosts import PeerStats
from tests.support.daemon import Daemon
from tests.support.pages import small
from tests.support.waiting import until

TENANT = f"uid:{os.geteuid()}"
MODEL = "model@1"


def free_port() -> int:
    """A port that nobody listens on, nor on the one after it."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


class Host:
    """One daemon and the address that its peers know it by."""

    def __init__(
        self,
        *options: str,
        memory: str = "64MiB",
        peers: Sequence[str] = (),
        port: int = 0,
        ip: str = "127.0.0.1",
        under: Sequence[str] = (),
    ) -> None:
        self.port = port or free_port()
        self.address = f"tcp://{ip}:{self.port}"
        known = [word for peer in peers for word in ("--peer", peer)]
        self.daemon = Daemon("--listen", self.address, *known, *options, memory=memory, under=under)

    def client(self, timeout: float = 30.0) -> nexuskv.Client:
        """A new client of this host's daemon."""
        return self.daemon.client(timeout)


@contextlib.contextmanager
def running(*hosts: Host) -> Iterator[None]:
    """Hosts that answer, stopped cleanly at the end."""
    try:
        for host in hosts:
            host.daemon.wait_ready()
        yield
        for host in hosts:
            killed = host.daemon.process.poll() is not None
            code = host.daemon.stop()
            assert killed or code == 0, host.daemon.log
            assert killed or host.daemon.objects() == [], "the daemon left shared-memory objects behind"
    finally:
        for host in hosts:
            host.daemon.clean_up()


def opened(client: nexuskv.Client, kib: int = 64) -> nexuskv.Cache:
    """The cache that all hosts of a test share: pages of `kib` KiB."""
    return client.open(small(kib=kib), model=MODEL)


def peer(client: nexuskv.Client, address: str) -> PeerStats | None:
    """What the client's daemon knows of the peer at an address."""
    return next((each for each in client.peers().peers if each.address == address), None)


def wait_for(client: nexuskv.Client, *others: Host, state: str = "connected") -> None:
    """Returns once the client's daemon says so of all others."""

    def there() -> bool:
        found = [peer(client, other.address) for other in others]
        return all(each is not None and each.state == state for each in found)

    until(there, f"the peers are {state}")


@contextlib.contextmanager
def pair(*options: str, memory: str = "64MiB") -> Iterator[tuple[Host, Host]]:
    """Two hosts, of which the second dials the first and is connected to it."""
    first = Host(*options, memory=memory)
    second = Host(*options, memory=memory, peers=[first.address])
    with running(first, second):
        with second.client() as client:
            wait_for(client, first)
        yield first, second
