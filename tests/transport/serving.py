"""A serving end inside the test: one region, a loop that accepts, and whoever the test wants to admit.

Owns its thread and its memory. What it exposes is `PAGE`, again and again.
"""

import contextlib
import mmap
import os
import select
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from nexuskv_transport import (
    Admit,
    Connection,
    Identity,
    Outcome,
    Plain,
    Pull,
    Region,
    Security,
    ServerEnd,
    Transport,
    open_transport,
)

PAGE = bytes(range(256)) * 16
REGION_BYTES = 64 * len(PAGE)
TENANT = "ours"
SECONDS = 20.0
PLAIN = Plain()


class Serving(NamedTuple):
    """What a client has to know; `ends` are those that were accepted so far."""

    address: str
    region: Region
    ends: list[ServerEnd]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def end(self, index: int = 0) -> str:
        """Why the serving end with this index is over; waits for that."""
        until = time.monotonic() + SECONDS
        while len(self.ends) <= index or self.ends[index].ended is None:
            assert time.monotonic() < until, "the serving end lives on"
            time.sleep(0.01)
        return str(self.ends[index].ended)

    def all_said(self) -> str:
        """Why the serving ends are over, all that were accepted: a connection has several, and each is told its own."""
        until = time.monotonic() + SECONDS
        while not self.ends or any(end.ended is None for end in self.ends):
            assert time.monotonic() < until, "a serving end lives on"
            time.sleep(0.01)
        return "; ".join(str(end.ended) for end in self.ends)


def by_certificate(identity: Identity) -> frozenset[str]:
    """Admits by what the certificate says, and everybody without one."""
    return identity.tenants if "unknown" not in identity.name else frozenset({TENANT})


@contextlib.contextmanager
def serving(security: Security = PLAIN, admit: Admit = by_certificate) -> Iterator[Serving]:
    """A listener on a free port, and its region."""
    with open_transport("tcp:", security) as transport, _accepting(transport, admit) as (address, ends):
        memory = memoryview(mmap.mmap(-1, REGION_BYTES))
        memory[:] = PAGE * 64
        yield Serving(address, transport.expose(7, memory, tenant=TENANT), ends)


@contextlib.contextmanager
def _accepting(transport: Transport, admit: Admit) -> Iterator[tuple[str, list[ServerEnd]]]:
    ends: list[ServerEnd] = []
    stop = os.eventfd(0)
    with transport.listen("tcp://127.0.0.1:0", admit) as listener:

        def accept() -> None:
            while stop not in select.select([listener.fileno(), stop], [], [])[0]:
                if (end := listener.accept()) is not None:
                    ends.append(end)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.address, ends
        finally:
            os.eventfd_write(stop, 1)
            thread.join()
            os.close(stop)


def fetch(connection: Connection, region: Region, nbytes: int = len(PAGE)) -> tuple[Outcome, bytes]:
    """One pull from the beginning of a region: its outcome, and what arrived."""
    into = memoryview(bytearray(nbytes))
    assert connection.pull([Pull(1, region, 0, into)], time.monotonic() + SECONDS) == 1
    while not (done := connection.completed()):
        assert select.select([connection.fileno()], [], [], SECONDS * 2)[0], "a pull did not end"
    assert [each.id for each in done] == [1]
    return done[0].outcome, bytes(into)


@contextlib.contextmanager
def connected(address: str, security: Security = PLAIN) -> Iterator[Connection]:
    """A pulling end of its own transport."""
    with open_transport("tcp:", security) as transport, transport.connect(address) as connection:
        yield connection


def served(address: str, region: Region, security: Security = PLAIN) -> bool:
    """Whether a new client gets a page there."""
    with connected(address, security) as connection:
        return fetch(connection, region) == (Outcome.OK, PAGE)
