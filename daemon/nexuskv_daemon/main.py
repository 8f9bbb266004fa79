"""nexuskvd: puts the parts together, serves, and takes them apart again.

Owns the order of starting and stopping. The only module that knows all the others.
"""

import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from importlib.metadata import version

from nexuskv.errors import Disconnected, NotPermitted, StartupError
from nexuskv.ipc import seqpacket
from nexuskv.protocol import codec
from nexuskv.protocol.messages import PROTOCOL_VERSION, Drain, Hello, Refused, Welcome
from nexuskv.quantity import format_size
from nexuskv_daemon import config, limits, notify, recovery
from nexuskv_daemon.arenas import DATA, SegmentObject, SegmentObjects
from nexuskv_daemon.branch_log import BranchLogFile
from nexuskv_daemon.config import Config
from nexuskv_daemon.core.engine import Engine
from nexuskv_daemon.core.lineage import Lineage
from nexuskv_daemon.core.requests import Identity
from nexuskv_daemon.core.store import Store
from nexuskv_daemon.index import Era
from nexuskv_daemon.instance import InstanceLock
from nexuskv_daemon.listener import Listener, listen
from nexuskv_daemon.publications import Publications
from nexuskv_daemon.recovery import Known
from nexuskv_daemon.server import Server, Shells
from nexuskv_daemon.shm import Namespace
from nexuskv_daemon.trimming import Trimmer
from nexuskv_daemon.worker import Worker

log = logging.getLogger("nexuskvd")
STOP_SECONDS = 60.0
STOPS = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str] | None = None) -> int:
    """Runs the daemon in the foreground until SIGTERM or SIGINT. Returns the exit code."""
    chosen = config.parse(arguments)
    logging.basicConfig(level=chosen.log_level, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        stop_keeping(chosen) if chosen.stop_keeping else serve(chosen)
    except (StartupError, Disconnected, NotPermitted) as error:
        log.error("%s", error)  # noqa: TRY400  # a sentence for the operator; the traceback would bury it
        return 1
    return 0


def stop_keeping(chosen: Config) -> None:
    """Makes the running daemon stop, leave its objects in place, and be gone. Raises Disconnected, NotPermitted."""
    with seqpacket.connect(chosen.socket, STOP_SECONDS) as sock:
        for request in (Hello(1, PROTOCOL_VERSION, "nexuskvd --stop-keeping"), Drain(2)):
            seqpacket.send(sock, codec.encode(request))
            answer = codec.decode_reply(seqpacket.Receiver().plain(sock))
            if isinstance(answer, Refused):
                raise NotPermitted(answer.message)
            if isinstance(answer, Welcome) and answer.instance != chosen.instance:
                raise StartupError(
                    f"the daemon at {chosen.socket} is instance {answer.instance!r}, not {chosen.instance!r}: nothing "
                    "was stopped; give its --instance, or the --socket of the other"
                )
        while sock.recv(1):
            pass
    InstanceLock(chosen.instance, patience=STOP_SECONDS).release()


def serve(chosen: Config) -> None:
    """Starts, serves until told to stop, and leaves nothing behind unless told to keep. Raises StartupError."""
    early = _note_stops()
    limits.raise_nofile()
    budget = chosen.memory or limits.default_budget()
    with contextlib.ExitStack() as stack:
        lock = InstanceLock(chosen.instance)
        stack.callback(lock.release)
        known = _known(chosen)
        limits.check_budget(budget, held=Namespace(chosen.instance).allocated(DATA))
        listener = _listener(chosen)
        stack.callback(listener.close)
        gc.disable()
        identity = _identity(chosen)
        server = _assemble(chosen, budget, known, listener, identity, stack)
        if chosen.outside.wanted:
            _go_outside(chosen, budget, identity, server, stack)
        _spare_the_collector()
        _heed_signals(server, stack)
        if early:
            server.stop()
        _run(server, chosen, budget)


def _known(chosen: Config) -> Known | None:
    """What an earlier daemon of this instance left to take over; anything else of it is removed."""
    namespace = Namespace(chosen.instance)
    known = None if chosen.fresh else recovery.known(namespace)
    if known is None:
        recovery.discard(namespace)
    return known


def _assemble(
    chosen: Config,
    budget: int,
    known: Known | None,
    listener: Listener,
    identity: Identity,
    stack: contextlib.ExitStack,
) -> Server:
    namespace = Namespace(chosen.instance)
    objects = SegmentObjects(namespace)
    worker = Worker(objects)
    noted = known.journal if known is not None else None
    era = Era(chosen.instance, identity.boot_epoch)
    publications = Publications(namespace, era, chosen.sizes(budget), noted)
    branches = BranchLogFile(namespace.branches, known.branches if known is not None else [])
    lineage = Lineage(identity.boot_epoch, branches)
    store = Store(budget, chosen.segment_size(budget), publications, branches=lineage)
    engine = Engine(store, identity, chosen.max_page_bytes)
    first_session = 1
    if known is not None:
        restored = recovery.take_over(namespace, known, store, objects, publications)
        first_session = recovery.next_session(namespace, restored)
        engine.inherit(restored.writing, publications.orphans)
        log.info("took over %d pages", restored.pages)
    shells = Shells(objects, publications, worker, listener)
    server = Server(engine, shells, frozenset({0, os.geteuid()}), chosen.tenant, first_session)
    stack.callback(lambda: branches.close(keep=chosen.keep or server.keep))
    stack.callback(lambda: _let_go(shells, keep=chosen.keep or server.keep))
    stack.callback(server.close)
    trimmer = Trimmer(namespace)
    trimmer.start()
    stack.callback(trimmer.stop)
    return server


def _go_outside(
    chosen: Config, budget: int, identity: Identity, server: Server, stack: contextlib.ExitStack
) -> None:
    # Most daemons know no other host.
    from nexuskv_daemon.peers.service import PeersThread  # noqa: PLC0415  # loaded by those that do
    from nexuskv_daemon.peers.settings import settings  # noqa: PLC0415  # likewise

    thread = PeersThread(settings(chosen.outside, chosen.tenant(os.geteuid()), budget), identity, server)
    outside = thread.start()
    server.go_outside(outside)
    if chosen.outside.directory:
        server.tell_of_pages(lambda pages, there: outside.changed(pages, there=there))
    server.watch(thread.ready, thread.drain)
    stack.callback(thread.stop)


def _run(server: Server, chosen: Config, budget: int) -> None:
    status = f"instance {chosen.instance} serves up to {format_size(budget)} on {chosen.socket}"
    log.info("%s", status)
    notify.ready(status)
    server.run()
    log.info("stopping")
    notify.stopping("giving back memory" if not chosen.keep else "leaving memory in place")


def _listener(chosen: Config) -> Listener:
    inherited = notify.listen_fds()
    if len(inherited) > 1:
        raise StartupError(
            f"{len(inherited)} sockets were handed over: one ListenSequentialPacket= is served"
        )
    return Listener(inherited[0].socket) if inherited else listen(chosen.socket, chosen.socket_mode)


def _identity(chosen: Config) -> Identity:
    # Random, so that no clock can make two starts look the same; positive, so that 0 can mean "none".
    return Identity(chosen.instance, version("nexuskv"), secrets.randbits(62) + 1, time.monotonic())


def _let_go(shells: Shells, *, keep: bool) -> None:
    for number, made in shells.worker.stop():
        if isinstance(made, SegmentObject):
            shells.objects.adopt(number, made)
    shells.publications.close(keep=keep)
    shells.objects.close(keep=keep)
    shells.worker.join()


def _note_stops() -> list[int]:
    """Stops that come while starting, to be heeded once there is something to undo.

    Noted instead of blocked: a thread that a library made at import would take a signal that this one blocks.
    """
    early: list[int] = []
    for number in STOPS:
        signal.signal(number, lambda number, _: early.append(number))
    return early


def _heed_signals(server: Server, stack: contextlib.ExitStack) -> None:
    """SIGTERM and SIGINT end the loop; the wake-up socket interrupts its wait."""
    awake, waker = socket.socketpair(type=socket.SOCK_DGRAM)
    stack.enter_context(awake)
    stack.enter_context(waker)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    stack.callback(signal.set_wakeup_fd, -1)
    for number in STOPS:
        signal.signal(number, lambda *_: server.stop())
    server.watch(awake.fileno(), lambda: _drain(awake))


def _drain(awake: socket.socket) -> None:
    awake.recv(4096)


def _spare_the_collector() -> None:
    """A million entries make no cycles; walking them in every full collection would stop the loop for a second."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1 << 30)
