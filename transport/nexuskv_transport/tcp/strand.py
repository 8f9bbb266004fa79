"""One stream of the pulling end: sends requests, and receives their answers straight into the extents.

Owns the order of answers and what to do with bytes that are none. Two parties use it: its own thread connects and
receives; the connection's owner asks, which never waits. What the socket does not take at once is sent by the thread
after the next answer: a full socket means that answers are due.
"""

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import msgspec

from nexuskv_transport import tls, wire
from nexuskv_transport.base import Outcome, Pull, Security
from nexuskv_transport.ledger import Ledger
from nexuskv_transport.regions import Stretch
from nexuskv_transport.tcp.address import Endpoint
from nexuskv_transport.tcp.sockets import CONNECT_SECONDS, check_allowed, prepare
from nexuskv_transport.tcp.stream import Cutter, Hangup, PlainStream, Stream, TlsStream
from nexuskv_transport.watch import NEVER

PING_SECONDS = 15.0
"""Silence after which the peer is asked whether it lives."""
PONG_SECONDS = 10.0
GREETING_SECONDS = 20.0
"""From the first packet to the end of the handshake."""


class Dial(NamedTuple):
    """Whom to connect to, and how."""

    endpoint: Endpoint
    security: Security
    context: ssl.SSLContext | None


class Owner(Protocol):
    """The connection that a strand belongs to. Called from the strand's thread."""

    def over(self, strand: "Strand", sentence: str) -> None:
        """The strand's socket is closed, and its thread writes nowhere any more."""


class Fault(NamedTuple):
    """The pulls that made a strand end, and how they ended; all others are merely cut off."""

    ids: Sequence[int]
    outcome: Outcome


class _Asked(msgspec.Struct):
    """A request under way; a ping has no pulls. `header` is how the answer has to begin."""

    number: int
    ids: Sequence[int]
    extents: Sequence[memoryview]
    nbytes: int
    header: bytes


class Strand:
    """Connects in its thread, once started; what is asked before then is sent when the peer has greeted."""

    def __init__(self, dial: Dial, ledger: Ledger, owner: Owner) -> None:
        self.load = 0  # bytes asked for and not here
        self.fault = Fault((), Outcome.CLOSED)
        self._dial = dial
        self._ledger = ledger
        self._owner = owner
        self._cutter = Cutter()
        self._lock = threading.Lock()  # of all below
        self._stream: Stream | None = None  # once the peer has greeted
        self._over = False
        self._asked: deque[_Asked] = deque()
        self._unsent = bytearray()
        self._number = 0
        self._heard = time.monotonic()
        self._answer_by: float | None = self._heard + GREETING_SECONDS
        self._thread = threading.Thread(target=self._run, name=f"tcp-pull {dial.endpoint}", daemon=True)

    def start(self) -> None:
        """Begins to connect."""
        self._thread.start()

    def ask(self, pulls: Sequence[Pull], wanted: Sequence[Stretch], nbytes: int) -> bool:
        """Sends a request for at most MAX_COUNT pulls. Never waits. False if the strand is over, and took nothing."""
        ids, _, _, extents = zip(*pulls, strict=True)
        with self._lock:
            if self._over:
                return False
            self.load += nbytes
            self._number = number = (self._number + 1) % 2**32
            header = wire.encode_answer(wire.PAGES, number, nbytes)
            self._asked.append(_Asked(number, ids, extents, nbytes, header))
            self._unsent += wire.encode_pull(number, wanted)
            self._flush()
            return True

    def cut(self, sentence: str) -> list[int]:
        """Makes it end. Returns the pulls that nothing can write for any more: all, if it never reached its peer."""
        self._cutter.cut(sentence)
        with self._lock:
            if self._stream is not None:
                return []
            self._over = True
        return self.left()

    def left(self) -> list[int]:
        """The pulls that it did not deliver; to be asked when it is over. Each is told once."""
        with self._lock:
            assert self._over
            left = [id_ for asked in self._asked for id_ in asked.ids]
            self._asked.clear()
            return left

    def join(self, seconds: float) -> None:
        """Waits for the thread, which ends soon after `cut` unless it waits for a name server."""
        self._thread.join(seconds)

    def check(self, now: float) -> float:
        """Pings a peer that has been silent, and ends when it does not answer. Returns when to look again."""
        with self._lock:
            if self._answer_by is not None:
                if now >= self._answer_by:
                    self._cutter.cut("it does not answer")
            # While something is asked, the pulls' own deadlines watch over the peer.
            elif not self._asked and now >= self._heard + PING_SECONDS:
                self._answer_by = now + PONG_SECONDS
                self._ping()
            return min(self._answer_by or NEVER, now + PING_SECONDS)

    def _ping(self) -> None:
        self._number = number = (self._number + 1) % 2**32
        self._asked.append(_Asked(number, (), (), 0, wire.encode_answer(wire.PONG, number)))
        self._unsent += wire.encode_ping(number)
        self._flush()

    def _flush(self) -> None:
        """Sends what the socket takes. If it has failed, the thread learns that from receiving."""
        if self._stream is not None and self._unsent:
            try:
                del self._unsent[: self._stream.post(self._unsent)]
            except Hangup as hangup:
                self._cutter.cut(str(hangup))

    def _run(self) -> None:
        try:
            self._live()
        except (Hangup, wire.Violation, OSError) as error:
            sentence = self._cutter.sentence or _explained(error)
        with self._lock:
            self._over = True
        self._owner.over(self, sentence)

    def _live(self) -> NoReturn:
        """From the first packet to the last. Raises Hangup, Violation or OSError, and has then closed its socket."""
        sock = self._connected()
        try:
            if self._dial.context is not None:
                sock = self._secured(sock, self._dial.context)
            stream = TlsStream(sock) if isinstance(sock, ssl.SSLSocket) else PlainStream(sock)
            _greet(stream)
            self._open(stream)
            while True:
                self._receive(stream)
        finally:
            self._cutter.release()
            sock.close()

    def _connected(self) -> socket.socket:
        failure = OSError("its name has no address")
        for family, address in self._dial.endpoint.resolve():
            check_allowed(self._dial.endpoint, address, self._dial.security)
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                return self._reached(sock, address)
            except OSError as error:
                failure = error
        raise failure

    def _reached(self, sock: socket.socket, address: Any) -> socket.socket:
        try:
            self._cutter.hold(sock)
            prepare(sock)
            sock.settimeout(CONNECT_SECONDS)
            sock.connect(address)
            sock.settimeout(None)
        except BaseException:
            self._cutter.release()
            sock.close()
            raise
        return sock

    def _secured(self, sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
        host = self._dial.endpoint.host
        secured = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        try:
            self._cutter.hold(secured)
            secured.do_handshake()
        except BaseException:
            self._cutter.release()
            secured.close()
            raise
        return secured

    def _open(self, stream: Stream) -> None:
        with self._lock:
            if self._over:  # what was asked has been given up
                raise Hangup("cut")
            self._stream = stream
            self._heard, self._answer_by = time.monotonic(), None
            self._flush()

    def _receive(self, stream: Stream) -> None:
        """One answer. If its request is under way already, header and pages come in one system call."""
        header, asked = bytearray(wire.ANSWER_BYTES), self._first()
        if asked is None:
            stream.fill([header], len(header))
            asked = self._first()
            if asked is None or bytes(header) != asked.header:
                raise self._judged(header, asked)
            stream.fill(asked.extents, asked.nbytes)
        else:
            try:
                stream.fill([header, *asked.extents], len(header) + asked.nbytes)
            except Hangup as hangup:
                raise (self._judged(header, asked) if header[0] == wire.REFUSED else hangup) from None
            if bytes(header) != asked.header:
                raise self._judged(header, asked)
        self._deliver(asked)

    def _first(self) -> _Asked | None:
        return (
            self._asked[0] if self._asked else None
        )  # no lock: nobody else takes one out while the thread lives

    def _deliver(self, asked: _Asked) -> None:
        with self._lock:
            self._asked.popleft()
            self.load -= asked.nbytes
            self._heard, self._answer_by = time.monotonic(), None
            self._flush()
        if asked.ids:
            self._ledger.finish(asked.ids, Outcome.OK)

    def _judged(self, header: bytearray, asked: _Asked | None) -> wire.Violation:
        """What is wrong with an answer; remembers whose fault it is."""
        answer = wire.decode_answer(header)
        if asked is None or answer.number != asked.number:
            return wire.Violation("it answered what nobody had asked")
        if answer.kind == wire.REFUSED and answer.place < len(asked.ids):
            self.fault = Fault([asked.ids[answer.place]], Outcome.REFUSED)
            return wire.Violation(
                "it does not serve a page that was asked for: its region was withdrawn, or is not for this host"
            )
        self.fault = Fault(asked.ids, Outcome.BROKEN)
        return wire.Violation(f"it sent {answer.nbytes} bytes where {asked.nbytes} were asked for")


def _greet(stream: Stream) -> None:
    """Raises Violation where the peer does not want us."""
    stream.send([wire.encode_hello()], wire.HELLO_BYTES)
    hello = bytearray(wire.HELLO_BYTES)
    stream.fill([hello], len(hello))
    version, verdict = wire.decode_hello(hello)
    if verdict == wire.NOT_ADMITTED:
        raise wire.Violation(
            "it admits no tenant of this host: its operator has to allow what the certificate names"
        )
    if verdict != wire.WELCOME or version != wire.VERSION:
        raise wire.Violation(
            f"it speaks version {version} of the page protocol, and this host {wire.VERSION}: upgrade the older one"
        )


def _explained(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {tls.explained(error)}"
    if isinstance(error, TimeoutError):
        return "it cannot be reached"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
