"""Starts, asks, kills and clears away the processes of the demo: a private daemon, and engines.

Owns their command lines, pipes and temporary folder. Knows nothing of what is served. Each runs in a
session of its own, so that Ctrl-C reaches only the parent, which then ends them in order.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar, cast

import msgspec

import nexuskv
from nexuskv.contract import Descriptor, to_json
from nexuskv.demo.wire import Answer, Failed, Order, Ready, Start, read_answer, write_line
from nexuskv.errors import Disconnected, NexusError

START_SECONDS = 60.0
STOP_SECONDS = 30.0

A = TypeVar("A", bound=Answer)


class DemoFailed(NexusError):
    """What the demo promises did not happen; the sentence says what did."""

    code = "demo_failed"


class DaemonProcess:
    """A private `nexuskvd` on a socket in a temporary folder; entered once it answers, gone when left."""

    def __init__(self, instance: str, memory: int) -> None:
        self._instance, self._memory = instance, memory
        self._folder = tempfile.TemporaryDirectory(prefix="nexuskv-demo-")
        self.socket = f"unix:{self._folder.name}/socket"
        self._log = Path(self._folder.name, "log")

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command(), stderr=log, start_new_session=True)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "nexuskv_daemon", "--instance", self._instance),
            *("--socket", self.socket, "--memory", str(self._memory)),
        ]

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise DemoFailed(f"the daemon did not start: {self._last_words()}")
            try:
                with nexuskv.connect(self.socket):
                    return
            except Disconnected:
                time.sleep(0.02)
        raise DemoFailed(f"the daemon did not answer within {START_SECONDS:.0f} s: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with status {self._process.returncode} and said nothing"

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for leftover in Path("/dev/shm").glob(f"nexuskv-{self._instance}-*"):
            leftover.unlink()  # only a daemon that was killed leaves any
        self._folder.cleanup()


class EngineProcess:
    """One engine, an OS process of its own that shares nothing with its parent but two pipes."""

    def __init__(self, name: str, socket: str, descriptor: Descriptor) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nexuskv.demo.engine"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._orders = cast("IO[bytes]", self._process.stdin)  # not None: a pipe was asked for
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._start = Start(socket, msgspec.Raw(to_json(descriptor)))

    def __enter__(self) -> Self:
        try:
            self.ready = self.ask(self._start, Ready)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def ask(self, order: Order, answer: type[A]) -> A:
        """Sends one order and waits for its answer. Raises DemoFailed when it cannot be carried out."""
        try:
            write_line(self._orders, order)
            said = read_answer(self._answers)
        except BrokenPipeError:
            said = None
        if isinstance(said, answer):
            return said
        raise DemoFailed(
            f"{self.name}: {said.sentence if isinstance(said, Failed) else 'ended unexpectedly'}"
        )

    def kill(self) -> None:
        """SIGKILL: no handler, no goodbye to the daemon. Does nothing the second time."""
        self._process.kill()
        self._process.communicate()
