"""A peer that a daemon knows, and that is no daemon: it says what a test has it say, and serves real bytes.

Owns one listening socket and a thread for each connection. It holds one chain of pages; each answer can be replaced.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from nexuskv import contract
from nexuskv.contract import Descriptor
from nexuskv.contract.blocks import blocks_of, cut
from nexuskv.protocol import messages as m
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.checksums import checksum
from nexuskv_transport import open_transport
from tests.support.hosts import TENANT, free_port
from tests.support.pages import content

Answer = Callable[["Impostor", Any], Iterable[p.AnyMessage | bytes]]
"""What is sent for a message: messages, or bytes as they are."""
HANG_UP = b""


class Impostor:
    """Listens from entering to leaving; `said` are the messages it got."""

    def __init__(
        self,
        descriptor: Descriptor,
        keys: list[bytes],
        answers: Mapping[type[m.Message], Answer] | None = None,
        boot_epoch: int = 4711,
        port: int = 0,
    ) -> None:
        self.descriptor = descriptor
        self.keys = keys
        self.said: list[p.AnyMessage] = []
        self.hello = p.Hello(0, p.PROTOCOL_VERSION, "impostor", boot_epoch, "", [])
        self.port = port or free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._answers: dict[type[Any], Answer] = {**HONEST, **(answers or {})}
        self.memory = memoryview(
            bytearray(b"".join(content(key, descriptor.page_bytes).tobytes() for key in keys) or b"0")
        )

    def __enter__(self) -> Self:
        self.transport = open_transport("tcp:")
        self.region = self.transport.expose(7, self.memory, tenant=TENANT)
        self._data = self.transport.listen("tcp://127.0.0.1:0", lambda _: {TENANT})
        self._sock = socket.create_server(("127.0.0.1", self.port))
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept), threading.Thread(target=self._accept_data)]
        self._stopping, self._stopper = socket.socketpair()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopper.close()
        self.hang_up()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._sock.close()
        self._stopping.close()
        self.transport.close()

    def hang_up(self) -> None:
        """Ends all connections."""
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def greeting(self) -> p.Hello:
        """An honest hello."""
        hello = self.hello
        return p.Hello(0, hello.version, hello.instance, hello.boot_epoch, self.address, [self._data.address])

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _accept_data(self) -> None:
        while True:
            stopping = self._stopping.fileno()
            ready, _, _ = select.select([self._data.fileno(), stopping], [], [])
            if stopping in ready:
                return
            self._data.accept()

    def _serve(self, sock: socket.socket) -> None:
        self._open.add(sock)
        frames = p.Frames()
        with sock, contextlib.suppress(OSError):
            while data := sock.recv(1 << 16):
                for message in frames.feed(data):
                    self.said.append(message)
                    for reply in self._answers[type(message)](self, message):
                        if reply == HANG_UP:
                            return
                        sock.sendall(reply if isinstance(reply, bytes) else p.frame(reply))
        self._open.discard(sock)


def _hello(me: Impostor, _: p.Hello) -> list[p.AnyMessage]:
    return [me.greeting()]


def _open(me: Impostor, request: p.Open) -> list[p.AnyMessage]:
    known = request.digest == me.descriptor.digest
    return [p.Opened(request.id, 3 if known else 0, contract.encode(me.descriptor) if known else b"")]


def resident(me: Impostor, keys: list[bytes]) -> int:
    """How many leading keys it has."""
    return next((at for at, key in enumerate(keys) if key not in me.keys), len(keys))


def _measure(me: Impostor, request: m.Measure) -> list[p.AnyMessage]:
    return [m.Measured(request.id, 0, resident(me, request.keys))]


def remote_pages(me: Impostor, keys: list[bytes]) -> list[p.RemotePage]:
    """Where the leading keys lie."""
    found: list[p.RemotePage] = []
    for key in keys[: resident(me, keys)]:
        offset = me.keys.index(key) * me.descriptor.page_bytes
        page = me.memory[offset : offset + me.descriptor.page_bytes]
        found.append(p.RemotePage(7, offset, checksum(page).to_bytes(8, "little")))
    return found


def _pin(me: Impostor, request: p.Pin) -> list[p.AnyMessage]:
    return [p.Regions(0, "tcp", [me.region]), p.Pinned(request.id, 0, remote_pages(me, request.keys))]


def pin_blocks(me: Impostor, request: p.PinBlocks) -> list[p.AnyMessage]:
    """Where blocks stand that have no selector: each has its place for a number."""
    blocks, told = blocks_of(me.descriptor), list[p.RemoteBlock]()
    for block in request.wanted:
        offset = me.keys.index(block.page) * me.descriptor.page_bytes
        page = me.memory[offset : offset + me.descriptor.page_bytes]
        found = checksum(cut(page, blocks.extents(request.layer, block.number)))
        told.append(p.RemoteBlock(7, offset, block.number, found.to_bytes(8, "little")))
    return [p.Regions(0, "tcp", [me.region]), p.PinnedBlocks(request.id, told)]


def nothing(me: Impostor, message: p.AnyMessage) -> list[p.AnyMessage]:
    """Says nothing."""
    return []


def hang_up(me: Impostor, message: p.AnyMessage) -> list[bytes]:
    """Ends the connection."""
    return [HANG_UP]


HONEST: Mapping[type[Any], Answer] = {
    p.Hello: _hello,
    p.Open: _open,
    m.Measure: _measure,
    p.Pin: _pin,
    p.PinBlocks: pin_blocks,
    p.Release: nothing,
    p.Ping: lambda _, ping: [p.Pong(ping.id)],
    p.Pong: nothing,
    p.Refused: nothing,
    p.Regions: nothing,
    p.Offer: nothing,
}
