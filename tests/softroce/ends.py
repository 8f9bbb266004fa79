"""A serving and a pulling transport in one process, and memory for them: what tests in a guest begin with."""

import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

from nexuskv_transport import Connection, Identity, Listener, Plain, Pull, Region, Transport, open_transport
from nexuskv_transport.checks.far import Memory

ADDRESS = "rdma://127.0.0.1:0"
"""Of the control connection; READs go through the guest's one device."""
PAGE = 65536


class Ends(NamedTuple):
    """`admitted` are the tenants that the serving one lets whoever connects read."""

    serving: Transport
    pulling: Transport
    address: str
    admitted: set[str]

    def connect(self) -> Connection:
        """A connection from the pulling to the serving one."""
        return self.pulling.connect(self.address)


@contextlib.contextmanager
def both(*admitted: str) -> Iterator[Ends]:
    """Both ends; the serving one accepts in a thread."""
    allowed = set(admitted)

    def admit(_: Identity) -> set[str]:
        return allowed

    with open_transport(ADDRESS, Plain()) as serving, open_transport(ADDRESS, Plain()) as pulling:
        listener = serving.listen(ADDRESS, admit)
        with accepting(listener):
            yield Ends(serving, pulling, listener.address, allowed)


@contextlib.contextmanager
def accepting(listener: Listener) -> Iterator[None]:
    """Accepts whoever comes."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.01):
            listener.accept()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def exposed(
    transport: Transport, number: int, tenant: str, content: bytes
) -> Iterator[tuple[memoryview, Region]]:
    """Shared memory with that content, exposed by a transport."""
    memory = Memory(len(content))
    memory.view[:] = content
    region = transport.expose(number, memory.view, fd=memory.fd, tenant=tenant)
    try:
        yield memory.view, region
    finally:
        transport.withdraw(number)
        memory.close()


def page_of(region: Region, into: memoryview, *, id_: int = 0, offset: int = 0) -> Pull:
    """A pull of the page at `offset`, into the first page of `into`."""
    return Pull(id_, region, offset, into[:PAGE])
