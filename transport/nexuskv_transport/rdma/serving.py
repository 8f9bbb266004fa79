"""The serving end: answers offers with queue pairs that may be read through, and has no part in the reading.

Owns the listener, its newcomers' conversations, and the queue pairs they are given; each in a thread that waits for its
peer and costs nothing meanwhile. A queue pair may read, through its own tenant's domain, and nothing else.
"""

import contextlib
import socket
import threading
from collections.abc import Collection
from typing import NamedTuple

from nexuskv.errors import NexusError, NotPermitted, RemoteError, StartupError
from nexuskv_transport.base import Admit, Identity, Listener, ServerEnd
from nexuskv_transport.rdma.control import Open, keep_alive
from nexuskv_transport.rdma.gids import Entry, ranked
from nexuskv_transport.rdma.handshake import Address, Answer, Offer, Turned, receive, send
from nexuskv_transport.rdma.lane import address_of_pair
from nexuskv_transport.rdma.regions import Regions
from nexuskv_transport.rdma.verbs import REMOTE_READ, Device, Queue, QueuePair

BACKLOG = 128


class _Served(NamedTuple):
    """The serving half of a lane. Nothing is ever posted to it, so nothing ever completes."""

    pair: QueuePair
    queue: Queue

    def close(self) -> None:
        self.pair.close()
        self.queue.close()


class RdmaEnd(ServerEnd):
    """One peer that reads."""

    def __init__(
        self, stream: socket.socket, secure: Open, device: Device, regions: Regions, admit: Admit
    ) -> None:
        self.ended: str | None = None
        self.sent = 0  # the device does not tell
        self._stream = stream
        self._secure = secure
        self._device = device
        self._regions = regions
        self._admit = admit
        self._lanes: dict[str, _Served] = {}
        self._thread = threading.Thread(target=self._run, name="rdma-serve", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.ended = self.ended or "closed by its listener"
        with contextlib.suppress(OSError):  # it was closed already
            self._stream.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._stream = self._secure(self._stream)
            tenants = self._admit(Identity(_name_of(self._stream), frozenset()))
            while True:
                self._answer(receive(self._stream), tenants)
        except (NexusError, OSError) as error:
            self.ended = self.ended or str(error)
        finally:
            for served in self._lanes.values():
                served.close()
            self._stream.close()

    def _answer(self, offer: object, tenants: Collection[str]) -> None:
        if not isinstance(offer, Offer):
            raise RemoteError("the peer says what only a serving end says: it is ended")
        try:
            answer: Answer | Turned = self._lane(offer, tenants)
        except (NotPermitted, StartupError) as error:
            answer = Turned(str(error)[:1024])
        send(self._stream, answer)

    def _lane(self, offer: Offer, tenants: Collection[str]) -> Answer:
        """A queue pair for a tenant, in place of the one that the peer may have had before."""
        if offer.tenant not in tenants:
            raise NotPermitted("it is not admitted to that tenant")
        if before := self._lanes.pop(offer.tenant, None):
            before.close()
        trust = self._regions.trust(offer.tenant)
        entry = self._entry_like(offer.address)
        queue = Queue(self._device, 1)
        try:
            pair = QueuePair(trust.domain, queue, 1)
        except NexusError:
            queue.close()
            raise
        self._lanes[offer.tenant] = _Served(pair, queue)
        ours = address_of_pair(self._device, pair.number, entry)
        pair.connect(ours, offer.address, entry.row, REMOTE_READ)
        return Answer(ours, trust.probe.content, trust.probe.address, trust.probe.registration.rkey)

    def _entry_like(self, theirs: Address) -> Entry:
        own = self._stream.getsockname()[0]
        for entry in ranked(self._device.entries(), own):
            if entry.matches(theirs.kind, theirs.gid):
                return entry
        raise StartupError(f"no GID here is of the kind of {theirs.gid} ({theirs.kind})")


class RdmaListener(Listener):
    """Takes newcomers in until it is closed."""

    def __init__(
        self, target: tuple[str, int], secure: Open, device: Device, regions: Regions, admit: Admit
    ) -> None:
        try:
            self._socket = socket.create_server(target, backlog=BACKLOG, family=_family(target[0]))
        except OSError as error:
            raise StartupError(f"cannot listen on {target[0]}:{target[1]}: {error}") from error
        self._socket.setblocking(False)
        host, port = self._socket.getsockname()[:2]
        self.address = f"rdma://[{host}]:{port}" if ":" in host else f"rdma://{host}:{port}"
        self._secure = secure
        self._device = device
        self._regions = regions
        self._admit = admit
        self._ends: list[RdmaEnd] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> ServerEnd | None:
        self._device.check_process()
        try:
            stream, _ = self._socket.accept()
        except OSError:  # nobody, or nobody any more
            return None
        stream.setblocking(True)
        end = RdmaEnd(keep_alive(stream), self._secure, self._device, self._regions, self._admit)
        self._ends = [each for each in self._ends if each.ended is None] + [end]
        return end

    def close(self) -> None:
        self._socket.close()
        for end in self._ends:
            end.close()
        self._ends.clear()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _name_of(stream: socket.socket) -> str:
    host, port = stream.getpeername()[:2]
    return f"{host}:{port}"
