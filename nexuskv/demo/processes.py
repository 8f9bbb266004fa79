"""Starts, asks and kills the engine processes of the demo.

Owns their command line and pipes. Knows nothing of what is served. Each runs in a session of its own, so that
Ctrl-C reaches only the parent, which then ends them.
"""

import subprocess
import sys
from types import TracebackType
from typing import IO, Self, TypeVar, cast

import msgspec

from nexuskv.contract import Descriptor, to_json
from nexuskv.demo.wire import Answer, Failed, Order, Ready, Start, read_answer, write_line
from nexuskv.errors import NexusError

A = TypeVar("A", bound=Answer)


class DemoFailed(NexusError):
    """What the demo promises did not happen; the sentence says what did."""

    code = "demo_failed"


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
