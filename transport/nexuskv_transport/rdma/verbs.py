"""The verbs that this transport uses, with types, over pyverbs: the only module that imports it.

Owns devices, protection domains, registrations, completion queues and queue pairs, and the numbers of the verbs ABI.
Knows nothing of pages, peers and tenants.

Three things that pyverbs leaves to its caller: work requests go through the extended interface with one scatter element
that is used again and again (SendWR and SGE objects are never freed unless closed, and cost six times as much to make);
the descriptor of a completion channel is found in /proc, for pyverbs 44 does not tell it; and every call holds the GIL,
so nothing here ever waits.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.fork import fork_init
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE

from nexuskv.errors import LocalError, StartupError
from nexuskv_transport.rdma.gids import Entry
from nexuskv_transport.rdma.handshake import Address
from nexuskv_transport.rdma.reads import Read

PORT = 1
MOST_GIDS = 1024
DEVICES = Path("/sys/class/infiniband")
NO_ACCESS, LOCAL_WRITE, REMOTE_READ = 0, 1, 4
PORT_ACTIVE = 4
LINK_ETHERNET = 2

# Numbers of the ABI, the same in all releases; pyverbs has moved its own names of them about.
_RC = 2
_ERR = 6
_SIGNALED = 2
_MASK_STATE = 1
_INIT_PD, _INIT_SEND_OPS = 1, 1 << 6
_WITH_READ = 1 << 4

ACK_TIMEOUT = 16  # 4.096 us * 2^16 = 0.27 s for an answer, seven times: 1.9 s until a silent peer is given up
RETRIES = 6  # soft-RoCE takes 7 to mean for ever
RNR_TIMER = 12
EVENTS = "anon_inode:[infinibandevent]"

_descriptors = threading.Lock()  # held while channels come and go, so that a new one's descriptor can be told


class Completion(NamedTuple):
    """The end of a work request. With an error, only these two are valid."""

    wr_id: int
    status: int


class Limits(NamedTuple):
    """What a device allows."""

    chunk: int
    """Bytes of one registration."""
    message: int
    """Bytes of one READ."""
    depth: int
    """Work requests of one queue."""
    initiated: int
    """READs that a queue pair has on the wire at once (max_rd_atomic)."""
    served: int
    """READs that it answers at once (max_dest_rd_atomic)."""


def devices() -> list[str]:
    """Names of the RDMA devices of this host."""
    return sorted(each.name for each in DEVICES.iterdir()) if DEVICES.exists() else []


class Device:
    """An open device. Belongs to the process that opened it: a child of fork must open its own."""

    def __init__(self, name: str) -> None:
        _make_fork_safe()
        self.name = name
        self._pid = os.getpid()
        with _saying(f"cannot open RDMA device {name}"):
            self.context = Context(name=name)
            device, port = self.context.query_device(), self.context.query_port(PORT)
        if port.state != PORT_ACTIVE:
            self.context.close()
            raise StartupError(f"port {PORT} of RDMA device {name} is not active: bring its network link up")
        self.mtu = port.active_mtu
        self.lid = port.lid
        self.ethernet = port.link_layer == LINK_ETHERNET
        self.limits = Limits(
            chunk=device.max_mr_size,
            message=port.max_msg_sz,
            depth=min(device.max_qp_wr, device.max_cqe),
            initiated=device.max_qp_init_rd_atom,
            served=device.max_qp_rd_atom,
        )

    def check_process(self) -> None:
        """Raises LocalError in a child of the process that opened it."""
        if os.getpid() != self._pid:
            raise LocalError(
                f"RDMA device {self.name} was opened by process {self._pid}: open a transport of your own after fork"
            )

    def entries(self) -> list[Entry]:
        """The rows of its GID table that are in use now."""
        rows = self.context.query_gid_table(MOST_GIDS)
        return [
            Entry(row.gid_index, IPv6Address(row.gid_str()), row.gid_type)
            for row in rows
            if row.port_num == PORT
        ]

    def close(self) -> None:
        """All that was made of it must be closed."""
        self.context.close()


class Domain:
    """A protection domain: its keys open nothing in another one."""

    def __init__(self, device: Device) -> None:
        self.device = device
        with _saying(f"RDMA device {device.name} makes no protection domain"):
            self.pd = PD(device.context)

    def close(self) -> None:
        """All that was made in it must be closed."""
        self.pd.close()


class Registration:
    """Memory that the device may reach, pinned. `remote` lets peers with its rkey read it; none can ever write it."""

    def __init__(self, domain: Domain, address: int, nbytes: int, *, remote: bool) -> None:
        access = LOCAL_WRITE | (REMOTE_READ if remote else 0)
        try:
            self._mr = MR(domain.pd, nbytes, access, address=address)
        except PyverbsRDMAError as error:
            raise StartupError(_unregistrable(nbytes, error)) from error
        self.lkey = self._mr.lkey
        self.rkey = self._mr.rkey

    def close(self) -> None:
        """When it returns, no key of it opens anything, and the device does not touch the memory any more."""
        self._mr.close()


class Queue:
    """A completion queue that is not looked at."""

    def __init__(self, device: Device, depth: int, channel: CompChannel | None = None) -> None:
        with _saying(f"RDMA device {device.name} makes no completion queue"):
            self.cq = CQ(device.context, depth, None, channel, 0)

    def close(self) -> None:
        """Its queue pairs must be closed."""
        self.cq.close()


class Completions(Queue):
    """A completion queue, and a descriptor that is readable when something is in it."""

    def __init__(self, device: Device, depth: int) -> None:
        with _descriptors, _saying(f"RDMA device {device.name} makes no completion channel"):
            before = _event_descriptors()
            self._channel = CompChannel(device.context)
            (self.fd,) = _event_descriptors() - before
        os.set_blocking(self.fd, False)
        super().__init__(device, depth, self._channel)
        self._depth = depth
        self.cq.req_notify()

    def drained(self, *, signalled: bool) -> list[Completion]:
        """All that have come; `signalled` says that the descriptor is readable.

        Then the queue is armed anew before it is looked at, so that nothing comes unnoticed in between.
        """
        if signalled:
            self._channel.get_cq_event(self.cq)
            self.cq.ack_events(1)
            self.cq.req_notify()
        _, found = self.cq.poll(self._depth)
        return [Completion(each.wr_id, each.status) for each in found]

    def close(self) -> None:
        super().close()
        with _descriptors:
            self._channel.close()


class QueuePair:
    """One end of a reliable connection that reads (`access` none) or is read from (REMOTE_READ)."""

    def __init__(self, domain: Domain, queue: Queue, depth: int) -> None:
        self._device = domain.device
        self._element = SGE(0, 0, 0)
        attributes = QPInitAttrEx(
            qp_type=_RC,
            scq=queue.cq,
            rcq=queue.cq,
            cap=QPCap(max_send_wr=depth, max_recv_wr=1, max_send_sge=1, max_recv_sge=1),
            sq_sig_all=0,
            comp_mask=_INIT_PD | _INIT_SEND_OPS,
            pd=domain.pd,
            send_ops_flags=_WITH_READ,
        )
        with _saying(f"RDMA device {self._device.name} makes no queue pair for READ"):
            self._qp = QPEx(self._device.context, attributes)
        self.number = self._qp.qp_num

    def connect(self, ours: Address, theirs: Address, gid_index: int, access: int) -> None:
        """Makes it ready to send and to serve. Raises StartupError."""
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = access
        attributes.dest_qp_num = theirs.queue_pair
        attributes.sq_psn, attributes.rq_psn = ours.sequence, theirs.sequence
        attributes.path_mtu = min(ours.mtu, theirs.mtu)
        # What one side has on the wire at once, the other must be able to answer at once.
        attributes.max_rd_atomic = min(ours.initiated, theirs.served)
        attributes.max_dest_rd_atomic = min(ours.served, theirs.initiated)
        attributes.min_rnr_timer, attributes.timeout = RNR_TIMER, ACK_TIMEOUT
        attributes.retry_cnt = attributes.rnr_retry = RETRIES
        attributes.ah_attr = self._route(theirs, gid_index)
        with _saying(f"RDMA device {self._device.name} has no way to {theirs.gid}"):
            self._qp.to_rts(attributes)

    def post(self, reads: Sequence[Read], first: int) -> None:
        """Posts a chain with one doorbell, numbered from `first`; the last one is signalled. Raises StartupError."""
        qp, element, last = self._qp, self._element, len(reads) - 1
        qp.wr_start()
        qp.wr_flags = 0
        for index, (_, local, lkey, remote, rkey, nbytes, _) in enumerate(reads):
            qp.wr_id = first + index
            if index == last:
                qp.wr_flags = _SIGNALED
            qp.wr_rdma_read(rkey, remote)
            element.addr, element.length, element.lkey = local, nbytes, lkey
            qp.wr_set_sge(element)
        with _saying(f"RDMA device {self._device.name} takes no work"):
            qp.wr_complete()

    def fail(self) -> None:
        """Puts it into the error state: what is posted is flushed, nothing is served or received any more."""
        attributes = QPAttr(port_num=PORT)
        attributes.qp_state = _ERR
        with contextlib.suppress(PyverbsError):  # it never left the reset state
            self._qp.modify(attributes, _MASK_STATE)

    def close(self) -> None:
        """When it returns, the device neither reads nor writes memory on its behalf."""
        self._qp.close()
        self._element.close()

    def _route(self, theirs: Address, gid_index: int) -> AHAttr:
        if not self._device.ethernet:
            return AHAttr(dlid=theirs.lid, port_num=PORT)
        route = GlobalRoute(dgid=GID(theirs.gid), sgid_index=gid_index, hop_limit=64)
        return AHAttr(gr=route, is_global=1, port_num=PORT)


@contextlib.contextmanager
def _saying(what: str) -> Iterator[None]:
    try:
        yield
    except PyverbsError as error:
        raise StartupError(f"{what}: {error}") from error


def _unregistrable(nbytes: int, error: PyverbsRDMAError) -> str:
    if error.error_code == errno.ENOMEM:
        return f"cannot register {nbytes} bytes for RDMA: raise the memory lock limit (LimitMEMLOCK=infinity)"
    return f"cannot register {nbytes} bytes for RDMA: {error}"


def _event_descriptors() -> set[int]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed by another thread
            if str(link.readlink()) == EVENTS:
                found.add(int(link.name))
    return found


def _make_fork_safe() -> None:
    """Keeps queues out of children, and devices from being closed by them. Done once."""
    global _fork_safe  # noqa: PLW0603  # a process forks as a whole
    if not _fork_safe:
        with contextlib.suppress(PyverbsRDMAError):  # not needed by this kernel
            fork_init()
        os.register_at_fork(after_in_child=_let_go)
        _fork_safe = True


_fork_safe = False


def _let_go() -> None:
    """Puts /dev/null in place of a child's copies of the device, or what the child frees its parent would lose."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for link in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if "/infiniband/uverbs" in str(link.readlink()):
                os.dup2(null, int(link.name), inheritable=False)
    os.close(null)
