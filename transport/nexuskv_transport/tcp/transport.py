"""The transport `tcp`: what this process exposes over TCP, where it listens, whom it pulls from.

Owns the lifetime of all of that. Knows nothing of streams.
"""

from nexuskv_transport import tls
from nexuskv_transport.base import Admit, Connection, Limits, Listener, Region, Security, Tls, Transport
from nexuskv_transport.regions import Regions
from nexuskv_transport.tcp.address import parse
from nexuskv_transport.tcp.connection import TcpConnection
from nexuskv_transport.tcp.listener import TcpListener
from nexuskv_transport.tcp.server import House
from nexuskv_transport.tcp.strand import Dial
from nexuskv_transport.watch import Watch


class TcpTransport(Transport):
    """Reads the certificates once. Raises StartupError where they are none."""

    def __init__(self, address: str, security: Security) -> None:
        self._security = security
        self._serving = tls.server_context(security) if isinstance(security, Tls) else None
        self._pulling = tls.client_context(security) if isinstance(security, Tls) else None
        self._regions = Regions()
        self._watch = Watch("tcp-watch")
        self._listeners: list[TcpListener] = []
        self._connections: list[TcpConnection] = []

    def expose(self, number: int, buffer: memoryview, *, fd: int | None = None, tenant: str) -> Region:
        return self._regions.expose(number, buffer, tenant)

    def withdraw(self, number: int) -> None:
        self._regions.withdraw(number)

    def listen(self, address: str, admit: Admit) -> Listener:
        house = House(self._regions, admit, self._serving, self._watch)
        listener = TcpListener(parse(address), self._security, house)
        self._listeners.append(listener)
        return listener

    def connect(self, address: str, limits: Limits = Limits()) -> Connection:
        dial = Dial(parse(address), self._security, self._pulling)
        self._connections = [each for each in self._connections if not each.ledger.closed]
        self._connections.append(TcpConnection(dial, limits, self._watch))
        return self._connections[-1]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in self._connections:
            connection.close()
        self._regions.withdraw_all()
        self._watch.close()
