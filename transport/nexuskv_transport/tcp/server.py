"""The serving end of one stream: greets, judges each request, and sends the pages from where they lie.

Owns what a client may cost: its own thread, a request in decoding, and the seconds it may keep silent. Believes nothing
that comes in; what breaks a rule ends this stream, and nothing else. Knows nothing of other streams.
"""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from nexuskv_transport import tls, wire
from nexuskv_transport.base import Admit, Identity, ServerEnd
from nexuskv_transport.regions import Refusal, Regions
from nexuskv_transport.tcp.sockets import prepare
from nexuskv_transport.tcp.stream import Cutter, Hangup, PlainStream, Stream, TlsStream, say_goodbye
from nexuskv_transport.watch import Watch

HANDSHAKE_SECONDS = 10.0
STEP_SECONDS = 60.0
"""A client that asks nothing for so long, not even by a ping, is dead; one that reads no answer may hold no region."""
FAREWELL_SECONDS = 2.0
RECEIVE_BYTES = 64 << 10

log = logging.getLogger(__name__)


class House(NamedTuple):
    """What all ends of a listener share."""

    regions: Regions
    admit: Admit
    context: ssl.SSLContext | None
    watch: Watch


class TcpServerEnd(ServerEnd):
    """Lives in its thread, from the handshake to the end."""

    def __init__(
        self, sock: socket.socket, address: str, house: House, forget: Callable[["TcpServerEnd"], None]
    ) -> None:
        self.ended: str | None = None
        self.sent = 0
        self._name = address
        self._house = house
        self._forget = forget
        self._cutter = Cutter()
        self._due = time.monotonic() + HANDSHAKE_SECONDS
        self._waiting_for = "its handshake"
        self._thread = threading.Thread(
            target=self._run, args=(sock,), name=f"tcp-serve {address}", daemon=True
        )
        house.watch.add(self)
        self._thread.start()

    def cut(self) -> None:
        """A region that it reads is withdrawn."""
        self._cutter.cut("a region that it was reading was withdrawn")

    def close(self) -> None:
        self._cutter.cut("closed here")
        if self._thread is not threading.current_thread():
            self._thread.join()

    def check(self, now: float) -> float:
        """Ends it when it is too late with what it owes."""
        if now >= self._due:
            self._cutter.cut(f"{self._waiting_for} did not come in time")
        return self._due

    def _run(self, sock: socket.socket) -> None:
        try:
            self._serve(sock)
        except (wire.Violation, Refusal) as error:
            self._end(logging.WARNING, str(error))
        except Hangup as error:
            self._end(logging.DEBUG, self._cutter.sentence or str(error))
        except OSError as error:
            self._end(logging.WARNING, self._cutter.sentence or f"its handshake failed: {_explained(error)}")
        finally:
            self._house.watch.remove(self)
            self._forget(self)

    def _serve(self, sock: socket.socket) -> None:
        held = sock
        try:
            self._cutter.hold(sock)
            prepare(sock)
            if self._house.context is not None:
                held = self._house.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self._cutter.hold(held)
            self._converse(held)
        finally:
            self._expect("its hanging up", FAREWELL_SECONDS)
            say_goodbye(held)
            self._cutter.release()
            held.close()

    def _converse(self, sock: socket.socket) -> None:
        stream, identity = self._secured(sock)
        tenants = self._greet(stream, identity)
        requests, buffer = wire.Requests(), bytearray(RECEIVE_BYTES)
        view = memoryview(buffer)
        self._expect("a request, or the reading of an answer,", STEP_SECONDS)
        while True:
            nbytes = stream.receive(buffer)
            for request in requests.feed(view[:nbytes]):
                self._due = time.monotonic() + STEP_SECONDS
                self._answer(stream, request, tenants)

    def _secured(self, sock: socket.socket) -> tuple[Stream, Identity]:
        if not isinstance(sock, ssl.SSLSocket):
            return PlainStream(sock), Identity(f"unknown at {self._name}", frozenset())
        sock.do_handshake()
        identity = tls.identity(sock, self._name)
        self._name = identity.name
        return TlsStream(sock), identity

    def _greet(self, stream: Stream, identity: Identity) -> Collection[str]:
        hello = bytearray(wire.HELLO_BYTES)
        stream.fill([hello], len(hello))
        version, _ = wire.decode_hello(hello)
        tenants = self._house.admit(identity)
        verdict = _verdict(version, tenants)
        stream.send([wire.encode_hello(verdict)], wire.HELLO_BYTES)
        if verdict == wire.OTHER_VERSION:
            raise wire.Violation(
                f"it speaks version {version} of the page protocol, and this host {wire.VERSION}"
            )
        if verdict == wire.NOT_ADMITTED:
            raise wire.Violation(
                "it may read no tenant's pages: its certificate names none that is known here"
            )
        return tenants

    def _answer(self, stream: Stream, request: wire.Request, tenants: Collection[str]) -> None:
        kind, number, wanted, nbytes = request
        if kind == wire.PING:
            stream.send([wire.encode_answer(wire.PONG, number)], wire.ANSWER_BYTES)
            return
        try:
            with self._house.regions.lend(self, wanted, tenants) as pages:
                stream.send(
                    [wire.encode_answer(wire.PAGES, number, nbytes), *pages], wire.ANSWER_BYTES + nbytes
                )
        except Refusal as refusal:
            stream.send([wire.encode_answer(wire.REFUSED, number, place=refusal.place)], wire.ANSWER_BYTES)
            raise
        self.sent += nbytes

    def _expect(self, what: str, seconds: float) -> None:
        self._waiting_for, self._due = what, time.monotonic() + seconds
        self._house.watch.look_by(self._due)

    def _end(self, level: int, sentence: str) -> None:
        self.ended = sentence
        log.log(level, "%s: %s", self._name, sentence)


def _verdict(version: int, tenants: Collection[str]) -> int:
    if version != wire.VERSION:
        return wire.OTHER_VERSION
    return wire.WELCOME if tenants else wire.NOT_ADMITTED


def _explained(error: OSError) -> str:
    return tls.explained(error) if isinstance(error, ssl.SSLError) else error.strerror or str(error)
