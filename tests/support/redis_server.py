"""Real directory servers for tests: Debian's redis-server, or valkey-server, alone or as a cluster of three."""

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.waiting import until

SERVER = shutil.which("valkey-server") or shutil.which("redis-server")
COMMAND_LINE = shutil.which("valkey-cli") or shutil.which("redis-cli")
NEEDED = pytest.mark.skipif(
    SERVER is None or COMMAND_LINE is None, reason="needs a Redis server: apt-get install redis-server"
)


class RedisServer:
    """One server process; a test reaches it wherever it runs, over its Unix socket."""

    def __init__(self, *options: str, under: Sequence[str] = (), ip: str = "127.0.0.1") -> None:
        self.port = _free_port()
        self.ip = ip
        self._under = under
        self._options = options
        self._folder = tempfile.TemporaryDirectory(prefix="nexuskv-redis-")
        self._socket = str(Path(self._folder.name, "socket"))
        self.start()

    @property
    def url(self) -> str:
        """What a daemon is told."""
        return f"redis://{self.ip}:{self.port}"

    def start(self) -> None:
        """A new process on the same port, empty."""
        assert SERVER is not None
        command = [
            *self._under, SERVER, "--port", str(self.port), "--bind", self.ip, "--protected-mode", "no",
            "--unixsocket", self._socket, "--save", "", "--appendonly", "no",
            "--dir", self._folder.name, "--loglevel", "warning", "--logfile", str(Path(self._folder.name, "log")),
            *self._options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(self._answers, "the directory's server answers")

    def do(self, *words: str | bytes) -> Any:
        """What the server answers to a command."""
        with redis.Redis(unix_socket_path=self._socket) as client:
            return client.execute_command(*words)

    def count(self, prefix: bytes) -> int:
        """How many keys begin so."""
        return len(self.do("keys", prefix + b"*"))

    def calls(self, command: str) -> int:
        """How often a command was performed."""
        stats: dict[str, dict[str, int]] = self.do("info", "commandstats")
        return stats.get(f"cmdstat_{command}", {}).get("calls", 0)

    def _answers(self) -> bool:
        try:
            return bool(self.do("ping"))
        except redis.ConnectionError:
            return False

    def stop(self) -> None:
        """Ends the process."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def clean_up(self) -> None:
        """Leaves nothing behind."""
        self.stop()
        self._folder.cleanup()


@contextlib.contextmanager
def running(*options: str, under: Sequence[str] = (), ip: str = "127.0.0.1") -> Iterator[RedisServer]:
    """A server, gone at the end."""
    server = RedisServer(*options, under=under, ip=ip)
    try:
        yield server
    finally:
        server.clean_up()


@contextlib.contextmanager
def cluster() -> Iterator[list[RedisServer]]:
    """Three servers that are a cluster."""
    assert COMMAND_LINE is not None
    with contextlib.ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        nodes = [stack.enter_context(running(*options)) for _ in range(3)]
        addresses = [f"127.0.0.1:{node.port}" for node in nodes]
        create = [COMMAND_LINE, "--cluster", "create", *addresses, "--cluster-yes"]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        for node in nodes:
            until(partial(_is_up, node), "the cluster is up")
        yield nodes


def _is_up(node: RedisServer) -> bool:
    said: bytes = node.do("cluster", "info")
    return b"cluster_state:ok" in said


def _free_port() -> int:
    """Below 55536, because a node's cluster bus listens 10000 higher."""
    while True:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            if (port := int(sock.getsockname()[1])) < 55536:
                return port
