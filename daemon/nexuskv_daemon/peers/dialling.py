"""Connections to and from peers, before anybody said hello: TCP, and TLS where there are certificates.

Owns sockets, contexts and the question who is there. Knows nothing of what is said over a connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from nexuskv.errors import NexusError, StartupError
from nexuskv_daemon.peers.link import Wire
from nexuskv_daemon.peers.settings import Settings, endpoint
from nexuskv_transport import tls
from nexuskv_transport.base import Plain, Tls
from nexuskv_transport.tcp.address import Endpoint, on_this_host

log = logging.getLogger(__name__)
CONNECT_SECONDS = 5.0
BACKLOG = 1024


class Unreachable(NexusError):
    """Nobody answered at an address, or nobody whom to trust."""


class Dialler:
    """Makes connections as the settings want them. Raises StartupError for certificates that cannot be read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        security = settings.security
        self._client = tls.client_context(security) if isinstance(security, Tls) else None
        self._server = tls.server_context(security) if isinstance(security, Tls) else None

    async def dial(self, address: str) -> Wire:
        """A connection to a peer. Raises Unreachable."""
        try:
            host, port = endpoint(address)
            async with asyncio.timeout(CONNECT_SECONDS):
                streams = await asyncio.open_connection(host, port, ssl=self._client)
            return self._wire(*streams)
        except ssl.SSLError as error:
            raise Unreachable(f"{address}: {tls.explained(error)}") from error
        except (StartupError, OSError, TimeoutError) as error:
            raise Unreachable(f"{address}: {str(error) or 'no answer'}") from error

    async def listen(self, sock: socket.socket, welcome: Callable[[Wire], Awaitable[None]]) -> asyncio.Server:
        """Has `welcome` called with each newcomer, as a task of its own."""

        async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                wire = self._wire(reader, writer)
            except Unreachable as error:
                log.warning("somebody was turned away: %s", error)
            else:
                await welcome(wire)

        patience = CONNECT_SECONDS if self._server is not None else None
        return await asyncio.start_server(come, sock=sock, ssl=self._server, ssl_handshake_timeout=patience)

    def _wire(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Wire:
        """A connection, and whom it is with. Raises Unreachable for somebody without proof."""
        there = writer.get_extra_info("peername")
        if not there:
            writer.transport.abort()
            raise Unreachable("it was gone before it was looked at")
        name = str(Endpoint(*there[:2]))
        secured = writer.get_extra_info("ssl_object")
        if secured is not None:
            who = tls.identity(secured, name)
            return Wire(reader, writer, who.name, who.tenants)
        if not self._anywhere and not on_this_host(there):
            writer.transport.abort()
            raise Unreachable(f"{name} is not on this host, and there are no certificates: {_REMEDY}")
        return Wire(reader, writer, name, self._settings.tenants)

    @property
    def _anywhere(self) -> bool:
        security = self._settings.security
        return isinstance(security, Plain) and security.anywhere


_REMEDY = "give nexuskvd --tls-certificate, --tls-key and --tls-authority, or --insecure-peers if the network is yours"


def bind(settings: Settings) -> socket.socket:
    """The listening socket for peers. Raises StartupError."""
    plain = settings.security
    try:
        family, address = endpoint(settings.listen).resolve()[0]
        if isinstance(plain, Plain) and not plain.anywhere and not on_this_host(address):
            raise StartupError(f"peers without certificates are served on loopback only: {_REMEDY}")
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise StartupError(f"cannot listen for peers on {settings.listen}: {error}") from error
