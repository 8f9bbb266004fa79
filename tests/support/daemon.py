"""A real nexuskvd in a private instance, for tests and their child processes."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import nexuskv

READY_SECONDS = 30.0


class Daemon:
    """One daemon process, or several one after the other with the same options."""

    def __init__(
        self,
        *options: str,
        memory: str = "64MiB",
        instance: str | None = None,
        socket: Path | None = None,
        under: Sequence[str] = (),
    ) -> None:
        self.instance = instance or f"test-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._directory = tempfile.TemporaryDirectory(prefix="nexuskv-")
        self.socket = socket or Path(self._directory.name) / "d.sock"
        self.address = f"unix:{self.socket}"
        self._options = ["--instance", self.instance, "--socket", self.address, "--memory", memory, *options]
        self._log = Path(self._directory.name) / "log"
        self.process = self._spawn(under=under)

    def _spawn(self, *more: str, under: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        command = [*under, sys.executable, "-m", "nexuskv_daemon", *self._options, *more]
        with self._log.open("ab") as log:  # a pipe that nobody empties would hold the daemon up
            return subprocess.Popen(command, stderr=log)

    @property
    def log(self) -> str:
        """What the daemon said so far."""
        return self._log.read_text()

    def wait_ready(self) -> None:
        """Returns once the daemon answers a hello; fails with its log when it died instead."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"nexuskvd ended with {self.process.returncode}: {self.log}")
            with contextlib.suppress(nexuskv.Disconnected):
                nexuskv.connect(self.address).close()
                return
            time.sleep(0.02)
        raise AssertionError("nexuskvd did not answer in time")

    def client(self, timeout: float = 30.0, *, shared: bool = True) -> nexuskv.Client:
        """A new client of this daemon."""
        return nexuskv.connect(self.address, timeout=timeout, shared=shared)

    def objects(self) -> list[str]:
        """Names of this instance's shared-memory objects."""
        ours = re.compile(re.escape(f"nexuskv-{self.instance}-") + "[a-z]+.*")
        return sorted(name for name in os.listdir("/dev/shm") if ours.fullmatch(name))  # noqa: PTH208  # names, not paths

    def descriptors(self) -> int:
        """How many the process has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends the process and returns its exit code; what SIGKILL leaves behind is removed too."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def hand_over(self) -> int:
        """Ends the process as `nexuskvd --stop-keeping` does, which leaves everything to the next; its exit code."""
        command = [sys.executable, "-m", "nexuskv_daemon", *self._options, "--stop-keeping"]
        with self._log.open("ab") as log:
            subprocess.run(command, stderr=log, check=True, timeout=60)
        return self.process.wait(timeout=60)

    def restart(self, *more: str) -> None:
        """A new process with the same options and `more`, after `stop`."""
        self.start(*more)
        self.wait_ready()

    def start(self, *more: str, under: Sequence[str] = ()) -> None:
        """As `restart`, without waiting until it answers; `under` is a command that becomes the daemon."""
        self.process = self._spawn(*more, under=under)

    def clean_up(self) -> None:
        """Leaves nothing behind, whatever the test did."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for name in self.objects():
            Path("/dev/shm", name).unlink(missing_ok=True)
        self._directory.cleanup()


@contextlib.contextmanager
def running(*options: str, memory: str = "64MiB") -> Iterator[Daemon]:
    """A daemon that answers, stopped cleanly at the end: its exit code and what it leaves are checked."""
    daemon = Daemon(*options, memory=memory)
    try:
        daemon.wait_ready()
        yield daemon
        killed = daemon.process.poll() is not None
        code = daemon.stop()
        assert killed or code == 0, daemon.log
        assert killed or daemon.objects() == [], "the daemon left shared-memory objects behind"
    finally:
        daemon.clean_up()
