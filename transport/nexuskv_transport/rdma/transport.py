"""The transport of one RDMA device: what this process exposes by it, where it listens, whom it pulls from.

Owns the device and the order in which everything that was made of it is closed. Imported by `opening` alone.

Addresses are "rdma://HOST:PORT" of the control connection. `HOST` also says which device: that by whose network
interface the host has this address, else the first one; "rdma://DEVICE" names it.
"""

from urllib.parse import urlsplit

from nexuskv.errors import StartupError
from nexuskv_transport import tls
from nexuskv_transport.base import Admit, Connection, Limits, Listener, Region, Security, Tls, Transport
from nexuskv_transport.rdma.channel import parse
from nexuskv_transport.rdma.connection import RdmaConnection
from nexuskv_transport.rdma.regions import CHUNK_BYTES, Regions
from nexuskv_transport.rdma.serving import House, RdmaListener
from nexuskv_transport.rdma.verbs import Device, devices
from nexuskv_transport.tcp.strand import Dial
from nexuskv_transport.watch import Watch


class RdmaTransport(Transport):
    """Belongs to the process that opened it."""

    def __init__(self, address: str, security: Security, chunk_bytes: int = CHUNK_BYTES) -> None:
        """`chunk_bytes`: most bytes of one registration, within what the device allows."""
        self._security = security
        self._serving = tls.server_context(security) if isinstance(security, Tls) else None
        self._pulling = tls.client_context(security) if isinstance(security, Tls) else None
        self._device = _device_for(address)
        self._regions = Regions(self._device, chunk_bytes)
        self._watch = Watch("rdma-watch")
        self._listeners: list[RdmaListener] = []
        self._connections: list[RdmaConnection] = []
        self._open = True

    def expose(self, number: int, buffer: memoryview, *, fd: int | None = None, tenant: str) -> Region:
        self._device.check_process()
        return self._regions.expose(number, buffer, tenant)

    def withdraw(self, number: int) -> None:
        self._device.check_process()
        self._regions.withdraw(number)

    def listen(self, address: str, admit: Admit) -> Listener:
        self._device.check_process()
        house = House(self._device, self._regions, admit, self._serving)
        listener = RdmaListener(parse(address), self._security, house)
        self._listeners.append(listener)
        return listener

    def connect(self, address: str, limits: Limits = Limits()) -> Connection:
        self._device.check_process()
        dial = Dial(parse(address), self._security, self._pulling)
        connection = RdmaConnection(dial, self._device, self._regions, self._watch, limits)
        self._connections = [each for each in self._connections if not each.closed] + [connection]
        return connection

    def close(self) -> None:
        if not self._open:
            return
        self._device.check_process()
        self._open = False
        for connection in self._connections:
            connection.close()
        for listener in self._listeners:
            listener.close()
        self._watch.close()
        self._regions.close()
        self._device.close()


def _device_for(address: str) -> Device:
    found = devices()
    if not found:
        raise StartupError("this host has no RDMA device: use tcp, or `rdma link add` a soft-RoCE one")
    parts = urlsplit(address)
    host = parts.hostname or ""
    if host in found:
        return Device(host)
    for name in found:
        device = Device(name)
        if any(entry.ipv4 == host for entry in device.entries()):
            return device
        device.close()
    if host and parts.port is None:
        raise StartupError(f"no RDMA device here is named {host} or has that address: {', '.join(found)}")
    return Device(found[0])
