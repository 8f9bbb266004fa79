"""A session by hand: raw messages to a real daemon, for what the client would never send.

Owns one SOCK_SEQPACKET connection and the descriptors that came over it. Refuses to mend anything: what the daemon says
is handed to the test as it is.
"""

import itertools
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from nexuskv import contract
from nexuskv.ipc import seqpacket
from nexuskv.protocol import codec
from nexuskv.protocol import messages as m
from nexuskv.protocol.language import Notice, Reply, Request

R = TypeVar("R", bound=m.Message)
SECONDS = 30.0
_fresh = itertools.count(1)


def fresh(number: int) -> list[bytes]:
    """Page keys that nobody used before."""
    return [next(_fresh).to_bytes(m.KEY_BYTES, "big") for _ in range(number)]


class RawSession:
    """`segments` has the descriptor of each (segment, writable) handed out, `attached` those of the shared index.

    `notices` is what came unasked.
    """

    def __init__(self, path: Path, *, greet: bool = True) -> None:
        self._numbers = itertools.count(1)
        self._receiver = seqpacket.Receiver()
        self.notices: list[Notice] = []
        self.segments: dict[tuple[int, bool], int] = {}
        self.attached: list[int] = []
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.settimeout(SECONDS)
        try:
            self._sock.connect(str(path))
            if greet:
                self.ask(m.Hello(self.number(), m.PROTOCOL_VERSION), m.Welcome)
        except BaseException:
            self.close()
            raise

    def number(self) -> int:
        """A fresh request id."""
        return next(self._numbers)

    def send(self, message: Request | bytes, gifts: Sequence[int] = ()) -> None:
        """Sends a request, or bytes as they are, with descriptors that nobody asked for."""
        data = message if isinstance(message, bytes) else codec.encode(message)
        seqpacket.send(self._sock, data, gifts)

    def receive(self) -> Reply:
        """The next reply. Raises EOFError when the daemon ended the session."""
        while True:
            try:
                data, descriptors = self._receiver.with_descriptors(self._sock)
            except ConnectionResetError:
                raise EOFError from None
            if not data:
                raise EOFError
            message: Reply | Notice = codec.decode_reply(data)
            if isinstance(message, m.Attached):
                self.attached = descriptors
            if not isinstance(message, Notice):
                return message
            self.notices.append(message)
            if isinstance(message, m.Segments):
                names = [(segment.segment, segment.writable) for segment in message.segments]
                assert not self.segments.keys() & set(names), "a descriptor came twice"
                self.segments.update(zip(names, descriptors, strict=True))

    def ask(self, request: Request, expected: type[R]) -> R:
        """Sends a request, and returns its reply of the kind that it should have."""
        self.send(request)
        reply = self.receive()
        assert isinstance(reply, expected), reply
        assert reply.id == request.id
        return reply

    def refusal(self, message: Request | bytes) -> m.Refused:
        """Sends what must be refused."""
        self.send(message)
        reply = self.receive()
        assert isinstance(reply, m.Refused), reply
        return reply

    def ended(self) -> bool:
        """Whether the daemon ended this session: nothing more comes."""
        try:
            self.receive()
        except EOFError:
            return True
        return False

    def alive(self) -> bool:
        """Whether the session still answers."""
        self.ask(m.GetStats(self.number()), m.Stats)
        return True

    def attach(self) -> int:
        """Gets the descriptors of the shared index; returns the session's number."""
        return self.ask(m.Attach(self.number()), m.Attached).session

    def register(self, descriptor: contract.Descriptor) -> int:
        """The arena of `descriptor`."""
        return self.ask(m.Register(self.number(), contract.encode(descriptor)), m.Registered).arena

    def reserve(self, arena: int, keys: list[bytes], parent: bytes = b"", reservation: int = 0) -> m.Reserved:
        """Asks for slots and gets them."""
        return self.ask(m.Reserve(self.number(), arena, keys, parent, reservation), m.Reserved)

    def committed(self, arena: int, pages: int) -> list[bytes]:
        """Keys of a new chain that is resident."""
        keys = fresh(pages)
        reservation = self.reserve(arena, keys).reservation
        self.ask(m.Commit(self.number(), reservation, [], rest=True), m.Committed)
        return keys

    def states(self, arena: int, keys: list[bytes]) -> bytes:
        """What the daemon knows of each key."""
        return self.ask(m.Lookup(self.number(), arena, keys), m.Found).states

    def close(self) -> None:
        """Ends the session."""
        self._sock.close()
        seqpacket.close_all([*self.segments.values(), *self.attached])
        self.segments.clear()
        self.attached = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
