"""The serving end: answers offers with queue pairs that may be read through, and has no part in the reading.

Owns the listener, its newcomers' conversations, and the queue pairs they are given; each in a thread that waits for its
peer and costs nothing meanwhile. A queue pair may read, through its own tenant's domain, and nothing else.
"""

import socket
import ssl
import threading
from collections.abc import Collection
from typing import NamedTuple

from nexuskv.errors import NexusError, NotPermitted, RemoteError, StartupError
from nexuskv_transport.base import Admit, Listener, Security, ServerEnd
from nexuskv_transport.rdma.channel import answered, explained, spelled
from nexuskv_transport.rdma.gids import Entry, ranked
from nexuskv_transport.rdma.handshake import Address, Answer, Offer, Turned, receive, send
from nexuskv_transport.rdma.lane import address_of_pair
from nexuskv_transport.rdma.regions import Regions
from nexuskv_transport.rdma.verbs import REMOTE_READ, Device, Queue, QueuePair
from nexuskv_transport.tcp.address import Endpoint
from nexuskv_transport.tcp.sockets import listening
from nexuskv_transport.tcp.stream import Cutter, Hangup

MOST_PEERS = 1024
"""Each costs a thread and a descriptor. Who comes later is turned away."""

MOST_OFFERS = 256
"""In the life of a connection: the route to an address that is made up may take the kernel a second to give up."""


class House(NamedTuple):
    """What all ends of a listener share."""

    device: Device
    regions: Regions
    admit: Admit
    context: ssl.SSLContext | None


class _Served(NamedTuple):
    """The serving half of a lane. Nothing is ever posted to it, so nothing ever completes."""

    pair: QueuePair
    queue: Queue

    def close(self) -> None:
        self.pair.close()
        self.queue.close()


class RdmaEnd(ServerEnd):
    """One peer that reads."""

    def __init__(self, sock: socket.socket, house: House) -> None:
        self.ended: str | None = None
        self.sent = 0  # the device does not tell
        self._house = house
        self._cutter = Cutter()
        self._lanes: dict[str, _Served] = {}
        self._thread = threading.Thread(target=self._run, args=(sock,), name="rdma-serve", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._cutter.cut("closed here")
        self._thread.join()

    def _run(self, raw: socket.socket) -> None:
        try:
            sock, identity = answered(raw, self._house.context, self._cutter)
            try:
                self._converse(sock, self._house.admit(identity))
            finally:
                for served in self._lanes.values():
                    served.close()
                self._cutter.release()
                sock.close()
        except (NexusError, Hangup) as error:
            self.ended = self._cutter.sentence or str(error)
        except OSError as error:
            self.ended = self._cutter.sentence or f"the control connection failed: {explained(error)}"

    def _converse(self, sock: socket.socket, tenants: Collection[str]) -> None:
        if not tenants:
            raise NotPermitted("it may read no tenant's pages: its certificate names none that is known here")
        sock.settimeout(
            None
        )  # a peer that wants nothing is silent; the kernel finds out when its host is gone
        own = sock.getsockname()[0]
        for _ in range(MOST_OFFERS):
            send(sock, self._answer(receive(sock), tenants, own))
        raise RemoteError(f"it made {MOST_OFFERS} offers: a peer needs a few for each tenant")

    def _answer(self, offer: object, tenants: Collection[str], own: str) -> Answer | Turned:
        if not isinstance(offer, Offer):
            raise RemoteError("the peer says what only a serving end says: it is ended")
        try:
            return self._lane(offer, tenants, own)
        except (NotPermitted, StartupError) as error:
            return Turned(str(error)[:1024])

    def _lane(self, offer: Offer, tenants: Collection[str], own: str) -> Answer:
        """A queue pair for a tenant, in place of the one that the peer may have had before."""
        if offer.tenant not in tenants:
            raise NotPermitted("it is not admitted to that tenant")
        if before := self._lanes.pop(offer.tenant, None):
            before.close()
        device, trust = self._house.device, self._house.regions.trust(offer.tenant)
        entry = self._entry_like(offer.address, own)
        queue = Queue(device, 1)
        try:
            pair = QueuePair(trust.domain, queue, 1)
        except NexusError:
            queue.close()
            raise
        self._lanes[offer.tenant] = _Served(pair, queue)
        ours = address_of_pair(device, pair.number, entry)
        pair.connect(ours, offer.address, entry.row, REMOTE_READ)
        return Answer(ours, trust.probe.content, trust.probe.address, trust.probe.registration.rkey)

    def _entry_like(self, theirs: Address, own: str) -> Entry:
        for entry in ranked(self._house.device.entries(), own):
            if entry.matches(theirs.kind, theirs.gid):
                return entry
        raise StartupError(f"no GID here is of the kind of {theirs.gid} ({theirs.kind})")


class RdmaListener(Listener):
    """Takes newcomers in until it is closed. Raises StartupError."""

    def __init__(self, endpoint: Endpoint, security: Security, house: House) -> None:
        try:
            self._sock = listening(endpoint, security)
        except OSError as error:
            raise StartupError(f"cannot listen on {spelled(endpoint)}: {error.strerror}") from error
        self.address = spelled(Endpoint(endpoint.host, self._sock.getsockname()[1]))
        self._house = house
        self._ends: list[RdmaEnd] = []

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> ServerEnd | None:
        self._house.device.check_process()
        try:
            sock, _ = self._sock.accept()
        except OSError:  # nobody, or nobody any more
            return None
        self._ends = [each for each in self._ends if each.ended is None]
        if len(self._ends) >= MOST_PEERS:
            sock.close()
            return None
        self._ends.append(RdmaEnd(sock, self._house))
        return self._ends[-1]

    def close(self) -> None:
        self._sock.close()
        for end in self._ends:
            end.close()
        self._ends.clear()
