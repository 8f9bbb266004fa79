"""The peers' thread: puts the parts together, and takes them apart again.

Owns the order of starting and stopping, and the addresses that are told to peers. Only a daemon that has somebody to
talk to starts it; otherwise nothing of this package is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Collection
from concurrent.futures import Future

from nexuskv.errors import LocalError, StartupError
from nexuskv_daemon.core.requests import Identity
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.board import Board
from nexuskv_daemon.peers.checksums import Summer
from nexuskv_daemon.peers.dialling import Dialler, bind
from nexuskv_daemon.peers.directory import Directory
from nexuskv_daemon.peers.door import Door, Inside, OutsideDoor
from nexuskv_daemon.peers.errands import Errands
from nexuskv_daemon.peers.fetching import Fetcher
from nexuskv_daemon.peers.grounds import Grounds
from nexuskv_daemon.peers.landing import Lander
from nexuskv_daemon.peers.local import LocalSession
from nexuskv_daemon.peers.memory import Mappings
from nexuskv_daemon.peers.neighbours import Neighbours
from nexuskv_daemon.peers.seeking import Seeker
from nexuskv_daemon.peers.serving import Serving
from nexuskv_daemon.peers.settings import (
    DataAddress,
    Settings,
    data_addresses,
    is_anywhere,
    reached_at,
)
from nexuskv_transport.base import Identity as PeerIdentity
from nexuskv_transport.base import Listener, Plain, Transport
from nexuskv_transport.registry import open_transport
from nexuskv_transport.tcp.address import Endpoint

log = logging.getLogger(__name__)
SWITCH_SECONDS = 0.0005
"""The event loop waits so long at most for the interpreter lock while this thread computes."""


class PeersThread:
    """Runs from `start` to `stop`; both are called in the event loop's thread."""

    def __init__(self, settings: Settings, who: Identity, inside: Inside) -> None:
        self._settings = settings
        self._who = who
        self._door = Door(inside)
        self._started: Future[OutsideDoor] = Future()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="peers")

    @property
    def ready(self) -> int:
        """Readable when `drain` has something to do."""
        return self._door.ready

    def drain(self) -> None:
        """Does for the thread what only the event loop may."""
        self._door.drain()

    def start(self) -> OutsideDoor:
        """Returns once peers can connect. Raises StartupError."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()
        try:
            return self._started.result()
        except StartupError:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all links and pulls, then the thread. What was being pulled is left to the core, as a dead client's."""
        self._door.tell(self._stopping.set)
        self._thread.join()
        self._door.close()

    def _run(self) -> None:
        try:
            self._door.loop.run_until_complete(self._live())
        except StartupError as error:
            self._started.set_exception(error)
        except BaseException as error:
            log.exception("the peers' thread died: other hosts are not served any more")
            if not self._started.done():
                self._started.set_exception(StartupError(f"cannot start the peer half: {error!r}"))
            raise
        finally:
            self._door.loop.run_until_complete(self._door.loop.shutdown_default_executor())
            self._door.loop.close()

    async def _live(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self._started.set_result(OutsideDoor(self._door, await self._assemble(stack)))
            await self._stopping.wait()

    async def _assemble(self, stack: contextlib.AsyncExitStack) -> Errands:
        settings = self._settings
        dialler = Dialler(settings)
        transports, served = self._transports(stack)
        mappings = Mappings(transports)
        stack.callback(mappings.close)
        summer = Summer()
        stack.callback(summer.close)
        sock = bind(settings) if settings.listen else None
        if sock is not None:
            stack.callback(sock.close)
        advertise = _advertised(settings, sock)
        data = [self._serve(transports, address, advertise, stack) for address in served]
        hello = p.Hello(0, p.PROTOCOL_VERSION, self._who.instance, self._who.boot_epoch, advertise, data)
        grounds = Grounds(self._door, mappings)
        errands = Errands(self._door, mappings, grounds)
        serving = Serving(
            self._door, mappings, summer, errands.take, frozenset(address.scheme for address in served)
        )
        neighbours = Neighbours(dialler, hello, transports, serving, self._door)
        directory = self._directory(advertise, mappings)
        seeker, lander = Seeker(neighbours, directory), Lander(mappings, summer)
        fetcher = Fetcher(seeker, lander, settings.batch_bytes)
        errands.employ(seeker, lander, fetcher, neighbours, directory)
        stack.push_async_callback(_end_tasks, neighbours)
        if directory is not None:
            self._door.start(directory.run())
            stack.push_async_callback(directory.leave)
        if sock is not None:
            server = await dialler.listen(sock, neighbours.welcome)
            stack.callback(server.close)
            log.info("peers are served on %s", advertise)
        for address in settings.peers:
            neighbours.know(address, static=True)
        return errands

    def _directory(self, advertise: str, mappings: Mappings) -> Directory | None:
        """Raises StartupError."""
        if not self._settings.directory:
            return None
        if not advertise:
            raise StartupError("--directory tells others where this host is: it needs --listen")
        host = self._who.boot_epoch.to_bytes(8, "little")
        session = LocalSession(self._door, mappings, "")
        return Directory(Board(self._settings.directory), host, advertise, session)

    def _transports(self, stack: contextlib.AsyncExitStack) -> tuple[dict[str, Transport], list[DataAddress]]:
        """One a scheme: those that this host serves by, with the addresses, and TCP, which every host can pull by.

        What this host turns out not to have is done without, if something else was asked for too.
        """
        found: dict[str, Transport] = {}
        served: list[DataAddress] = []
        lacking: list[StartupError] = []
        for address in data_addresses(self._settings):
            try:
                self._open(found, address, stack)
            except StartupError as error:
                lacking.append(error)
            else:
                served.append(address)
        if lacking and not served:
            raise lacking[0]
        for each in lacking:
            log.warning("pages are served without it, by other ways: %s", each)
        self._open(found, DataAddress("tcp:", "tcp:"), stack)
        return found, served

    def _open(
        self, found: dict[str, Transport], address: DataAddress, stack: contextlib.AsyncExitStack
    ) -> None:
        if address.scheme not in found:
            found[address.scheme] = open_transport(address.opens, self._settings.security)
            stack.callback(found[address.scheme].close)

    def _serve(
        self,
        transports: dict[str, Transport],
        address: DataAddress,
        advertise: str,
        stack: contextlib.AsyncExitStack,
    ) -> str:
        """Begins to serve pages at an address. Returns what peers are told."""
        try:
            listener = transports[address.scheme].listen(address.listens, self._admit)
        except LocalError as error:
            raise StartupError(f"--data: {error}") from None
        self._door.loop.add_reader(listener.fileno(), _accept, listener)
        stack.callback(self._door.loop.remove_reader, listener.fileno())
        log.info("pages are served on %s", listener.address)
        return reached_at(listener.address, advertise)

    def _admit(self, who: PeerIdentity) -> Collection[str]:
        """Called in a transport's thread."""
        return self._settings.tenants if isinstance(self._settings.security, Plain) else who.tenants


async def _end_tasks(neighbours: Neighbours) -> None:
    """Ends links and lanes; then nothing writes into a slot any more, and tasks may be cut short."""
    neighbours.hang_up()
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:  # again and again: a task group that fails just then swallows a cancellation
            task.cancel()
        await asyncio.wait(tasks, timeout=0.1)


def _accept(listener: Listener) -> None:
    listener.accept()  # the listener holds who is served


def _advertised(settings: Settings, sock: socket.socket | None) -> str:
    """Where others reach this host, "" when nobody can. Raises StartupError."""
    if sock is None:
        return ""
    if settings.advertise:
        return settings.advertise
    host, port = sock.getsockname()[:2]
    if is_anywhere(host):
        raise StartupError(f"others cannot connect to {host}: say --advertise tcp://this-host:{port}")
    return str(Endpoint(host, port))
