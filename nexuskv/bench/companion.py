"""A Python process beside the measuring one: told one thing at its start, it answers one when it is told to stop.

Owns both ends of that conversation, JSON lines over its standard streams: orders go in, a line comes out once it is
under way, the end of its input means stop, and its last line is the answer. It runs in a session of its own, so that
Ctrl-C reaches only the parent; it ends when the parent does, whatever becomes of it.
"""

import select
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Self, TypeVar, cast

import msgspec

from nexuskv.errors import RemoteError

T = TypeVar("T", bound=msgspec.Struct)
STOP_SECONDS = 120.0


class Companion:
    """Runs `module` with `orders`. Entered once it is under way."""

    def __init__(self, module: str, orders: msgspec.Struct) -> None:
        self._module = module
        self._orders = orders

    def __enter__(self) -> Self:
        """Raises RemoteError with its last words."""
        self._complaints = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._complaints, start_new_session=True,
        )  # fmt: skip
        self._input, self._output = (
            cast("IO[bytes]", self._process.stdin),
            cast("IO[bytes]", self._process.stdout),
        )
        self._input.write(msgspec.json.encode(self._orders) + b"\n")
        self._input.flush()
        if not self._output.readline():
            self._leave()
            raise RemoteError(f"{self._module} did not start: {self.last_words}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell_to_stop(self) -> None:
        """Several can stop at the same time."""
        self._input.close()

    def answer(self, kind: type[T]) -> T | None:
        """What it says after it was told to stop; None if it ended before, or in an error."""
        said = self._output.read()
        return msgspec.json.decode(said, type=kind) if self._process.wait(STOP_SECONDS) == 0 else None

    @property
    def last_words(self) -> str:
        """The last line of what it complained about."""
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _leave(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._input, self._output, self._complaints):
            stream.close()


def orders(kind: type[T]) -> T:
    """In the companion: what it was told."""
    return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)


def under_way() -> None:
    """In the companion: says that it has begun."""
    print(flush=True)


def told_to_stop() -> bool:
    """In the companion: whether it is to end."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def reply(answer: msgspec.Struct) -> None:
    """In the companion: its answer."""
    print(msgspec.json.encode(answer).decode(), flush=True)
