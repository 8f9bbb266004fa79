"""The least that a daemon must say to a C client: welcome, attached, segments, done.

Owns a socket over one tenant's `Objects` and a data segment, and serves until the `with` ends. The real daemon is
tested end to end elsewhere; this one can also misbehave, which the real one never should.
"""

import array
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from nexuskv.native import _core
from tests.native.objects import SEGMENT, SLOT_BYTES, Objects, memory_file

Answer = tuple[list[Any], list[int]]


class Greeter:
    """`answers[tag]` gives what a request with that tag is answered with: messages, each with descriptors to send."""

    def __init__(self, folder: Path, objects: Objects) -> None:
        self.path = folder / "greeter.sock"
        self.objects = objects
        self.data = memory_file("data", objects.max_entries * SLOT_BYTES)
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[list[Any]], list[Answer]]] = {
            "hello": self._welcome,
            "register": lambda m: [(["registered", m[1], 5], [])],
            "attach": self._attach,
            "map": self._map,
        }
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(os.fspath(self.path))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"unix:{self.path}"

    def write(self, number: int, content: bytes) -> None:
        """Fills slot `number` of the segment."""
        os.pwrite(self.data, content, number * SLOT_BYTES)

    def hang_up(self, *last_word: object) -> None:
        """Ends every session, as a daemon that dies does; first with a message, if there is one."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                if last_word:
                    connection.send(msgspec.msgpack.encode(last_word))
                connection.shutdown(socket.SHUT_RDWR)

    def _welcome(self, message: list[Any]) -> list[Answer]:
        who = self.objects.epoch, self.objects.instance
        return [(["welcome", message[1], 1, *who, "t", "0.1.0"], [])]

    def _attach(self, message: list[Any]) -> list[Answer]:
        theirs = os.open(f"/proc/self/fd/{self.objects.new_pins()}", os.O_RDWR | os.O_CLOEXEC)
        _core.lock_owner(theirs)
        index, touch = os.dup(self.objects.index), os.dup(self.objects.touch)
        return [(["attached", message[1], 9], [index, touch, theirs])]

    def _map(self, message: list[Any]) -> list[Answer]:
        rows = [[SEGMENT, 1, self.objects.max_entries, SLOT_BYTES, False]]
        if message[2] != [SEGMENT]:
            return [(["refused", message[1], "bad_request", "no such segment here: ask for another"], [])]
        return [(["segments", 0, rows], [os.dup(self.data)]), (["done", message[1]], [])]

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(1 << 18):
                message = msgspec.msgpack.decode(data)
                self.asked.append(message[0])
                for answer, descriptors in self.answers[message[0]](message):
                    rights = array.array("i", descriptors)
                    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
                    connection.sendmsg([msgspec.msgpack.encode(answer)], ancillary)
                    for descriptor in descriptors:
                        os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.hang_up()
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._connections):
            sock.close()
        os.close(self.data)
