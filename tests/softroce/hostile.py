"""A peer that keeps to the handshake and to nothing else: it asks the device for whatever it likes.

Owns its own verbs, below the transport that is under test.
"""

import socket
import time
from types import TracebackType
from typing import Self

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

from nexuskv_transport.rdma.gids import Entry, ranked
from nexuskv_transport.rdma.handshake import Answer, Message, Offer, receive, send
from nexuskv_transport.rdma.lane import address_of_pair
from nexuskv_transport.rdma.regions import Probe
from nexuskv_transport.rdma.verbs import PORT, Device, Domain, Queue, devices
from nexuskv_transport.tcp.address import Endpoint

WRITE, READ, COMPARE_AND_SWAP = 0, 4, 5
SIGNALED = 2
ALL_ACCESS = 15
SECONDS = 20.0


class Hostile:
    """Connected to a serving end, for one tenant."""

    def __init__(self, endpoint: Endpoint, tenant: str) -> None:
        self._device = Device(devices()[0])
        self._domain = Domain(self._device)
        self._memory = Probe(self._domain, remote=True)
        self._queue = Queue(self._device, 16)
        cap = QPCap(max_send_wr=16, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        queue = self._queue.cq
        self._qp = QP(self._domain.pd, QPInitAttr(qp_type=2, scq=queue, rcq=queue, cap=cap, sq_sig_all=0))
        self._socket = socket.create_connection(endpoint, timeout=SECONDS)
        entry = ranked(self._device.entries(), "")[0]
        ours = address_of_pair(self._device, self._qp.qp_num, entry)
        send(self._socket, Offer(tenant, ours))
        self.answer: Message = receive(self._socket)
        if isinstance(self.answer, Answer):
            self._connect(entry, ours.sequence, self.answer)

    def ask(self, opcode: int, address: int, rkey: int) -> int:
        """Does that with eight bytes of the peer's memory, and returns the status of the verbs."""
        element = SGE(self._memory.address, 8, self._memory.registration.lkey)
        request = SendWR(wr_id=1, opcode=opcode, num_sge=1, sg=[element], send_flags=SIGNALED)
        if opcode == COMPARE_AND_SWAP:
            request.set_wr_atomic(rkey, address, 0, 0)
        else:
            request.set_wr_rdma(rkey, address)
        self._qp.post_send(request)
        request.close()
        element.close()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            _, found = self._queue.cq.poll(1)
            if found:
                return found[0].status
        raise TimeoutError("no completion")

    def _connect(self, entry: Entry, sequence: int, answer: Answer) -> None:
        theirs = answer.address
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = ALL_ACCESS
        attributes.dest_qp_num = theirs.queue_pair
        attributes.sq_psn, attributes.rq_psn = sequence, theirs.sequence
        attributes.path_mtu = theirs.mtu
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer, attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = (
            12,
            14,
            7,
            7,
        )
        route = GlobalRoute(dgid=GID(theirs.gid), sgid_index=entry.row, hop_limit=64)
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        self._qp.to_rts(attributes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._qp.close()
        self._queue.close()
        self._memory.close()
        self._domain.close()
        self._device.close()
        self._socket.close()
