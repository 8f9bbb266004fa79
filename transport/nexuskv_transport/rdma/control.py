"""The pulling end's control connection: a thread that connects, asks for lanes, and notices when the peer is gone.

Owns the socket and the conversation of `handshake`. Hands lanes over once a READ has got through. Knows nothing of
pulls.
"""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from nexuskv.errors import Disconnected, NexusError, NotPermitted, RemoteError, StartupError
from nexuskv_transport.rdma.gids import ranked
from nexuskv_transport.rdma.handshake import Answer, Offer, Turned, receive, send
from nexuskv_transport.rdma.lane import Lane
from nexuskv_transport.rdma.regions import Regions
from nexuskv_transport.rdma.verbs import Device

MOST_ATTEMPTS = 3
"""GIDs that are tried, the best first."""
Open = Callable[[socket.socket], socket.socket]
"""Secures a connected socket; the result is closed instead."""


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

    def __init__(
        self,
        target: tuple[str, int],
        secure: Open,
        device: Device,
        regions: Regions,
        tell: Callable[[], None],
    ) -> None:
        self.ended: str | None = None
        self.news: SimpleQueue[Ready | Refused] = SimpleQueue()
        self._target = target
        self._secure = secure
        self._device = device
        self._regions = regions
        self._tell = tell
        self._wanted: SimpleQueue[str] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._socket = _socket_for(target)
        self._thread = threading.Thread(target=self._run, name="rdma-control", daemon=True)
        self._thread.start()

    def want(self, tenant: str) -> None:
        """Asks for a lane to the peer's memory of a tenant."""
        self._wanted.put(tenant)
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Ends the conversation and the thread; closes lanes that nobody has taken."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        with contextlib.suppress(OSError):  # it was not connected
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, whatever it waits for
        self._thread.join()
        os.close(self._wake)
        while not self.news.empty():
            news = self.news.get()
            if isinstance(news, Ready):
                news.lane.stop()

    def _run(self) -> None:
        try:
            self._connect()
            self._converse()
        except NexusError as error:
            self.ended = str(error)
        except OSError as error:
            self.ended = f"no control connection to {self._target[0]}:{self._target[1]}: {error}"
        finally:
            self._socket.close()
            self._tell()

    def _connect(self) -> None:
        raw = self._socket
        raw.setblocking(False)
        pending = raw.connect_ex(self._target)
        if pending:
            self._await(select.POLLOUT)
            if error := raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, os.strerror(error))
        raw.setblocking(True)
        self._socket = self._secure(raw)

    def _converse(self) -> None:
        while True:
            try:
                tenant = self._wanted.get_nowait()
            except Empty:
                self._await(select.POLLIN)
                continue
            try:
                self.news.put(Ready(tenant, self._lane(tenant)))
            except NotPermitted as error:
                self.news.put(Refused(tenant, str(error)))
            self._tell()

    def _await(self, event: int) -> None:
        """Waits for the socket or the wake-up. Raises Disconnected at either one's end."""
        poller = select.poll()
        poller.register(self._socket, event)
        poller.register(self._wake, select.POLLIN)
        ready = dict(poller.poll())
        if self._closing:
            raise Disconnected("closed here")
        if self._wake in ready:
            os.eventfd_read(self._wake)
        elif event == select.POLLIN:  # nothing is asked, so nothing can be said but the end
            raise Disconnected("the peer closed the control connection")

    def _lane(self, tenant: str) -> Lane:
        """A lane that works. Raises NotPermitted, RemoteError, StartupError, OSError."""
        own = self._socket.getsockname()[0]
        entries = ranked(self._device.entries(), own)[:MOST_ATTEMPTS]
        for entry in entries:
            lane = Lane(self._regions.trust(tenant).domain, entry)
            try:
                if self._agreed(lane, tenant):
                    return lane
            except BaseException:
                lane.stop()
                raise
            lane.stop()
        tried = ", ".join(str(entry.gid) for entry in entries)
        raise StartupError(
            f"no READ gets through to the peer from GID {tried}: check the network of the device"
        )

    def _agreed(self, lane: Lane, tenant: str) -> bool:
        send(self._socket, Offer(tenant, lane.address))
        answer = receive(self._socket)
        match answer:
            case Answer():
                lane.connect(answer.address)
                return lane.proves(answer)
            case Turned():
                raise NotPermitted(f"the peer serves no memory of tenant {tenant!r}: {answer.sentence}")
            case Offer():
                raise RemoteError("the peer answers an offer with an offer: it is no serving end")


def _socket_for(target: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    return keep_alive(socket.socket(family, socket.SOCK_STREAM))


def keep_alive(stream: socket.socket) -> socket.socket:
    """Has the kernel end a connection to a host that is gone, after 8 s."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 4), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 2)):
        stream.setsockopt(socket.IPPROTO_TCP, option, value)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream
