"""A near end and a far end, as the checks use them.

Owns the far end's process and its death. Knows nothing of what is checked.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Protocol, cast

import msgspec

from nexuskv_transport.base import Connection, Limits, Plain, Region, Security, Transport
from nexuskv_transport.checks.far import OURS, Far, FarCard, FarOrders, Memory
from nexuskv_transport.registry import open_transport

LOCAL = 100
"""Numbers of the near end's regions begin here."""
PLAIN = Plain()


class FarEnd(Protocol):
    """What can be done to a far end."""

    @property
    def card(self) -> FarCard: ...
    @property
    def pid(self) -> int: ...
    def withdraw(self, number: int) -> None: ...
    def stall(self) -> None: ...
    def kill(self) -> None: ...


class Pair:
    """Made by `processes` or `in_process`."""

    def __init__(self, near: Transport, far: FarEnd) -> None:
        self._near = near
        self._far = far
        self._memory: list[Memory] = []
        self._open = ExitStack()

    def connect(self, limits: Limits = Limits()) -> Connection:
        """A new connection to the far end."""
        return self._open.enter_context(self._near.connect(self._far.card.address, limits))

    def connect_to(self, address: str) -> Connection:
        """A new connection to somewhere else."""
        return self._open.enter_context(self._near.connect(address))

    def memory(self, nbytes: int) -> memoryview:
        """Zeroed shared memory to pull into."""
        memory = Memory(nbytes)
        self._memory.append(memory)
        self._near.expose(LOCAL + len(self._memory), memory.view, fd=memory.fd, tenant=OURS)
        return memory.view

    def region(self, number: int) -> Region:
        """One of the far end's."""
        return self._far.card.regions[number]

    @property
    def far_pid(self) -> int:
        """The process that the far end lives in."""
        return self._far.pid

    def withdraw(self, number: int) -> None:
        """The far end takes a region back."""
        self._far.withdraw(number)

    def stall(self) -> None:
        """The far end serves no newcomer any more, and says nothing."""
        self._far.stall()

    def kill(self) -> None:
        """The far end is gone at once."""
        self._far.kill()

    def close(self) -> None:
        """Ends the near end."""
        self._open.close()
        self._near.close()
        for memory in self._memory:
            memory.close()


class _OtherProcess:
    def __init__(self, orders: FarOrders) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nexuskv_transport.checks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self.card = msgspec.json.decode(self._tell(msgspec.json.encode(orders)), type=FarCard)

    @property
    def pid(self) -> int:
        return self._process.pid

    def withdraw(self, number: int) -> None:
        self._tell(str(number).encode())

    def stall(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._input.close()
        self._output.close()

    def _tell(self, line: bytes) -> bytes:
        self._input.write(line + b"\n")
        self._input.flush()
        return self._output.readline()


class _SameProcess:
    def __init__(self, far: Far) -> None:
        self._far = far
        self.card = far.card
        self.pid = os.getpid()

    def withdraw(self, number: int) -> None:
        self._far.withdraw(number)

    def stall(self) -> None:
        self._far.hold()

    def kill(self) -> None:
        self.close()

    def close(self) -> None:
        self._far.close()


@contextmanager
def processes(address: str, near: Security = PLAIN, far: Security = PLAIN) -> Iterator[Pair]:
    """A far end in a process of its own, listening on `address`."""
    other = _OtherProcess(FarOrders(address, far))
    pair = Pair(open_transport(address, near), other)
    try:
        yield pair
    finally:
        pair.close()
        other.close()


@contextmanager
def in_process(address: str) -> Iterator[Pair]:
    """Both ends in this process."""
    far = _SameProcess(Far(open_transport(address), address))
    pair = Pair(open_transport(address), far)
    try:
        yield pair
    finally:
        pair.close()
        far.close()
