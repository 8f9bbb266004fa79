"""A daemon on the other host of a pair, and an engine beside it, for tests on this one.

Owns the orders, a line of JSON each on the standard input of a process there, and their answers. The daemon ends with
that process, however it ends.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

import nexuskv
from tests.softroce.agent import Remote, on_the_other_host
from tests.softroce.guests import SECOND
from tests.support import pages, presets
from tests.support.hosts import Host

MODEL = "model@1"
MEMORY = "512MiB"
SMALL, LARGE = "page of 64 KiB", "page of 1 MiB"
KIB = {SMALL: 64, LARGE: 1024}


class Start(msgspec.Struct, tag="start"):
    """Starts a daemon that holds nothing; `files` are written before, by absolute path."""

    port: int
    options: list[str]
    files: dict[str, str]


class Put(msgspec.Struct, tag="put"):
    """Stores pages of what `opened` opens."""

    kind: str
    pages: int
    branch: int


class Evict(msgspec.Struct, tag="evict"):
    """Evicts all that nobody holds."""


class Kill(msgspec.Struct, tag="kill"):
    """SIGKILL for the daemon."""


Order = Start | Put | Evict | Kill


class Done(msgspec.Struct):
    """Answers every order: how many pages it stored, or evicted."""

    pages: int


def opened(client: nexuskv.Client, kind: str) -> nexuskv.Cache:
    """The cache of a preset, with few layers, or of plain pages of a size."""
    descriptor = pages.small(f"plain-{KIB[kind]}", kib=KIB[kind]) if kind in KIB else presets.scaled(kind)
    return client.open(descriptor, model=MODEL)


class FarDaemon:
    """The near side; `address` is what peers know the daemon by."""

    def __init__(self, process: Remote, port: int) -> None:
        self.address = f"tcp://{SECOND.address}:{port}"
        self._port = port
        self._process = process

    def start(self, *options: str, files: dict[str, str] | None = None) -> None:
        """A daemon that answers; the one before it was killed."""
        self._do(Start(self._port, list(options), files or {}))

    def put(self, kind: str, count: int, branch: int = 0) -> int:
        """Stores what is absent of so many pages; returns how many that were."""
        return self._do(Put(kind, count, branch)).pages

    def evict(self) -> int:
        """Evicts what nobody holds, pulls included; returns how many pages that were."""
        return self._do(Evict()).pages

    def kill(self) -> None:
        """Returns when it is dead."""
        self._do(Kill())

    def _do(self, order: Order) -> Done:
        self._process.tell(msgspec.json.encode(order).decode())
        return msgspec.json.decode(self._process.hear(), type=Done)


@contextlib.contextmanager
def running(port: int) -> Iterator[FarDaemon]:
    """A process on the other host that takes orders; `port` is that of its daemons."""
    with on_the_other_host("-m", "tests.softroce.far_daemon") as process:
        yield FarDaemon(process, port)


class _There:
    """What takes the orders."""

    def __init__(self) -> None:
        self._hosts: list[Host] = []

    def perform(self, order: Order) -> int:
        """Does it; returns the number of pages that it is about."""
        match order:
            case Start():
                self._start(order)
            case Kill():
                host = self._hosts.pop()
                host.daemon.stop(signal.SIGKILL)
                host.daemon.clean_up()
            case Put():
                with self._hosts[-1].client() as client:
                    cache = opened(client, order.kind)
                    return pages.put(cache, presets.keys(cache, order.pages, order.branch))
            case Evict():
                with self._hosts[-1].client() as client:
                    return client.evict().pages
        return 0

    def _start(self, order: Start) -> None:
        for name, content in order.files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(content)
        dying_with_us = ("setpriv", "--pdeathsig", "KILL")
        host = Host(*order.options, memory=MEMORY, ip=SECOND.address, port=order.port, under=dying_with_us)
        host.daemon.wait_ready()
        self._hosts.append(host)


def main() -> None:
    """There."""
    there = _There()
    for line in sys.stdin.buffer:
        done = Done(there.perform(msgspec.json.decode(line, type=Order)))
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
