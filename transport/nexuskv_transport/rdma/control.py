"""The pulling end's control connection: a thread that connects, asks for lanes, and notices when the peer is gone.

Owns the socket and the conversation of `handshake`. Hands lanes over once a READ has got through. Knows nothing of
pulls.
"""

import os
import select
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from socket import socket
from typing import NamedTuple

from nexuskv.errors import Disconnected, NexusError, NotPermitted, RemoteError, StartupError
from nexuskv_transport.rdma.channel import dialled, explained
from nexuskv_transport.rdma.gids import ranked
from nexuskv_transport.rdma.handshake import Answer, Offer, Turned, receive, send
from nexuskv_transport.rdma.lane import Lane
from nexuskv_transport.rdma.regions import Regions
from nexuskv_transport.rdma.verbs import Device
from nexuskv_transport.tcp.strand import Dial
from nexuskv_transport.tcp.stream import Cutter, Hangup

MOST_ATTEMPTS = 3
"""GIDs that are tried, the best first."""


class Ready(NamedTuple):
    """A lane for a tenant."""

    tenant: str
    lane: Lane


class Refused(NamedTuple):
    """The peer makes no lane for a tenant."""

    tenant: str
    sentence: str


class Control:
    """Lives until `close`. `tell` is called from its thread when there is something in `news` or it has `ended`."""

    def __init__(self, dial: Dial, device: Device, regions: Regions, tell: Callable[[], None]) -> None:
        self.ended: str | None = None
        self.news: SimpleQueue[Ready | Refused] = SimpleQueue()
        self._dial = dial
        self._device = device
        self._regions = regions
        self._tell = tell
        self._wanted: SimpleQueue[str] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._cutter = Cutter()
        self._thread = threading.Thread(
            target=self._run, name=f"rdma-control {dial.endpoint.host}", daemon=True
        )
        self._thread.start()

    def want(self, tenant: str) -> None:
        """Asks for a lane to the peer's memory of a tenant."""
        self._wanted.put(tenant)
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Ends the conversation and the thread; closes lanes that nobody has taken."""
        self._cutter.cut("closed here")
        self._thread.join()
        os.close(self._wake)
        while not self.news.empty():
            news = self.news.get()
            if isinstance(news, Ready):
                news.lane.stop()

    def _run(self) -> None:
        try:
            sock = dialled(self._dial, self._cutter)
            try:
                self._converse(sock)
            finally:
                self._cutter.release()
                sock.close()
        except (NexusError, Hangup) as error:
            self.ended = self._cutter.sentence or str(error)
        except OSError as error:
            self.ended = self._cutter.sentence or f"no control connection to the peer: {explained(error)}"
        self._tell()

    def _converse(self, sock: socket) -> None:
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while True:
            self._answer_wishes(sock)
            ready = dict(poller.poll())
            if sock.fileno() in ready:  # nothing is asked, so nothing can be said but the end
                raise Disconnected("the peer closed the control connection")
            os.eventfd_read(self._wake)

    def _answer_wishes(self, sock: socket) -> None:
        while True:
            try:
                tenant = self._wanted.get_nowait()
            except Empty:
                return
            try:
                self.news.put(Ready(tenant, self._lane(sock, tenant)))
            except NotPermitted as error:
                self.news.put(Refused(tenant, str(error)))
            self._tell()

    def _lane(self, sock: socket, tenant: str) -> Lane:
        """A lane that works. Raises NotPermitted, RemoteError, StartupError, OSError."""
        own = sock.getsockname()[0]
        entries = ranked(self._device.entries(), own)[:MOST_ATTEMPTS]
        for entry in entries:
            lane = Lane(self._regions.trust(tenant).domain, entry)
            try:
                if self._agreed(sock, lane, tenant):
                    return lane
            except BaseException:
                lane.stop()
                raise
            lane.stop()
        tried = ", ".join(str(entry.gid) for entry in entries)
        raise StartupError(
            f"no READ gets through to the peer from GID {tried}: check the network of the device"
        )

    def _agreed(self, sock: socket, lane: Lane, tenant: str) -> bool:
        send(sock, Offer(tenant, lane.address))
        answer = receive(sock)
        match answer:
            case Answer():
                lane.connect(answer.address)
                return lane.proves(answer, lambda: self._cutter.sentence is None)
            case Turned():
                raise NotPermitted(f"the peer serves no memory of tenant {tenant!r}: {answer.sentence}")
            case Offer():
                raise RemoteError("the peer answers an offer with an offer: it is no serving end")
