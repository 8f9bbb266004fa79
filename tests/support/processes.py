"""Other OS processes for a test: each runs a function and talks with the test over a pipe.

Owns their start and their end: none outlives its test. A child starts from nothing (spawn), as another engine would.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from typing import Any

SECONDS = 30.0
SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")


class Child:
    """A running child. What it sends is `receive`d in order."""

    def __init__(self, context: SpawnContext | ForkContext, target: Callable[..., None], *args: Any) -> None:
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(target, theirs, *args))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Of the child."""
        assert self._process.pid is not None
        return self._process.pid

    def receive(self) -> Any:
        """What the child sends next; an exception of the child is raised here."""
        assert self._pipe.poll(SECONDS), "the child says nothing"
        said = self._pipe.recv()
        if isinstance(said, BaseException):
            raise said
        return said

    def send(self, what: object) -> None:
        """Tells the child something."""
        self._pipe.send(what)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends the child a signal. Does not wait for what comes of it."""
        os.kill(self.pid, number)

    def join(self) -> int:
        """Waits for the child's end; returns its exit code."""
        self._process.join(SECONDS)
        assert self._process.exitcode is not None, "the child does not end"
        return self._process.exitcode

    def close(self) -> None:
        """Ends the child, in whatever state it is."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()


@contextlib.contextmanager
def running(
    target: Callable[..., None], *args: Any, context: SpawnContext | ForkContext = SPAWN
) -> Iterator[Child]:
    """A child that runs `target(pipe, *args)`; ended at the end."""
    child = Child(context, target, *args)
    try:
        yield child
    finally:
        child.close()


def children(pid: int) -> list[int]:
    """The processes that `pid` has started and not waited for."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _run(target: Callable[..., None], pipe: Connection, *args: Any) -> None:
    try:
        target(pipe, *args)
    except BaseException as error:  # noqa: BLE001  # it is raised anew in the test
        pipe.send(error)
