"""What one TCP stream carries on this machine, as iperf3 says.

Owns its server process. Knows nothing of NexusKV.
"""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from nexuskv.errors import RemoteError

START_SECONDS = 10.0
RUN_SECONDS = 120.0


class Iperf:
    """An iperf3 server on a free port."""

    @staticmethod
    def here() -> bool:
        """Whether it is installed."""
        return shutil.which("iperf3") is not None

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = str(probe.getsockname()[1])
        self._server = subprocess.Popen(
            ["iperf3", "--server", "--bind", "127.0.0.1", "--port", self._port],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_until_it_listens()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()
        self._server.wait()

    @property
    def pid(self) -> int:
        return self._server.pid

    def seconds_a_gb(self, nbytes: int) -> list[float]:
        """Of one stream that carries so many bytes; what was received counts."""
        ended = subprocess.run(
            ["iperf3", "-c", "127.0.0.1", "-p", self._port, "-l", "1M", "-n", str(nbytes), "--json"],
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        said: dict[str, Any] = msgspec.json.decode(ended.stdout)
        if "error" in said:
            raise RemoteError(f"iperf3: {said['error']}")
        return [8e9 / said["end"]["sum_received"]["bits_per_second"]]

    def _wait_until_it_listens(self) -> None:
        """Looks into the kernel's table: a connection of our own would be taken for a test."""
        row = f" 0100007F:{int(self._port):04X} 00000000:0000 0A "
        until = time.monotonic() + START_SECONDS
        while row not in _sockets():
            if self._server.poll() is not None or time.monotonic() > until:
                self.__exit__(None, None, None)
                raise RemoteError("iperf3 --server does not start")
            time.sleep(0.01)


def _sockets() -> str:
    return Path("/proc/net/tcp").read_text(encoding="ascii")
