"""A private `nexuskvd`, started for one run and gone after it; in between it may be killed and started again.

Owns its command line, temporary folder and log. Knows nothing of what it is used for. It runs in a session of its own,
so that Ctrl-C reaches only the parent, which then ends it in order.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import nexuskv
from nexuskv.errors import Disconnected, StartupError

START_SECONDS = 60.0
STOP_SECONDS = 30.0


class PrivateDaemon:
    """Entered once it answers; `socket` is its address, `pid` its process. Gone when left."""

    def __init__(self, instance: str, *options: str) -> None:
        """`options` are those of `nexuskvd` beyond the instance and the socket."""
        self.instance = instance
        self._options = options
        self._folder = tempfile.TemporaryDirectory(prefix="nexuskv-")
        self.socket = f"unix:{self._folder.name}/socket"
        self._log = Path(self._folder.name, "log")

    def __enter__(self) -> Self:
        """Raises StartupError with the daemon's last words."""
        self.start()
        try:
            self.wait_until_it_answers()
        except BaseException:
            self._leave_nothing()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_nothing()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def objects(self) -> list[Path]:
        """What the instance has in shared memory now."""
        return list(Path("/dev/shm").glob(f"nexuskv-{self.instance}-*"))

    def start(self) -> None:
        """Starts a process, with the same options as the one before it; it may not answer yet."""
        command = [sys.executable, "-m", "nexuskv_daemon", "--instance", self.instance]
        options = ["--socket", self.socket, *self._options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *options], stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Ends the process as a crash would: what it has in shared memory stays."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends the process in order: a daemon that is well leaves nothing in shared memory."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait_until_it_answers(self) -> None:
        """Raises StartupError with the daemon's last words when it ended, or does not answer in time."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise StartupError(f"the daemon did not start: {self.last_words()}")
            try:
                with nexuskv.connect(self.socket):
                    return
            except Disconnected:
                time.sleep(0.02)
        raise StartupError(f"the daemon did not answer within {START_SECONDS:.0f} s: {self.last_words()}")

    def last_words(self) -> str:
        """The last line that a daemon of this run said."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with status {self._process.returncode} and said nothing"

    def _leave_nothing(self) -> None:
        self.stop()
        for leftover in self.objects:
            leftover.unlink()  # only a daemon that was killed leaves any
        self._folder.cleanup()


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into SystemExit, so that it ends private daemons as Ctrl-C does."""

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
