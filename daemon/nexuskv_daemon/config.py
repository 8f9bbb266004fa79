"""What the daemon was told on its command line, checked.

Owns the options and their defaults: with none at all, an ordinary user gets a daemon that works. Starts nothing.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from nexuskv.contract import MAX_PAGE_BYTES
from nexuskv.errors import NexusError
from nexuskv.ipc import address
from nexuskv.quantity import parse_size
from nexuskv_daemon.index import Sizes

SMALLEST_SEGMENT = 64 << 20
FEWEST_BYTES = 4096
"""Of a budget or a segment that is asked for: shared memory comes in pages of so many."""
SEGMENTS_A_BUDGET = 64
FEWEST_SEGMENTS_A_BUDGET = 16
SMALLEST_SHARE = 1 << 20
"""An arena has one at least, and a group of a hybrid model several arenas that must have room together."""
BYTES_AN_ENTRY = 16 << 10
FEWEST_ENTRIES, MOST_ENTRIES = 16_384, 4 << 20
"""An entry takes about 260 bytes of shared memory, on top of the budget: 1.6 % of it at most."""
FEWEST_SEGMENTS = 256


_TENANT = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)
"""No colon, so that no name is that of another user."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What was said of other hosts, unchecked as yet. `tls` are certificate, key and authority, or none."""

    listen: str
    advertise: str
    data: tuple[str, ...]
    peers: tuple[str, ...]
    directory: str
    tls: tuple[str, ...]
    insecure: bool
    plain_tenants: frozenset[str]

    @property
    def wanted(self) -> bool:
        """Whether there is anybody to talk to."""
        return bool(self.listen or self.peers or self.directory)


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes in bytes; `memory` 0 means a share of what the machine has free, `segment_bytes` 0 a share of `memory`."""

    instance: str
    socket: Path
    socket_mode: int
    memory: int
    segment_bytes: int
    max_page_bytes: int
    index_entries: int
    pins: int
    keep: bool
    fresh: bool
    stop_keeping: bool
    log_level: str
    tenants: dict[int, str]
    outside: PeerOptions

    def tenant(self, uid: int) -> str:
        """Whose pages a user's processes see."""
        return self.tenants.get(uid, f"uid:{uid}")

    def sizes(self, budget: int) -> Sizes:
        """Bounds of a tenant's shared index for a budget."""
        entries = self.index_entries or min(max(FEWEST_ENTRIES, budget // BYTES_AN_ENTRY), MOST_ENTRIES)
        segments = (
            4 * budget // self.segment_size(budget)
        )  # an id maps to the row of its remainder: few collide
        return Sizes(entries, self.pins, max(FEWEST_SEGMENTS, segments))

    def segment_size(self, budget: int) -> int:
        """Bytes of a segment for a budget: large enough to be few, small enough to be shared among arenas."""
        usual = max(SMALLEST_SEGMENT, budget // SEGMENTS_A_BUDGET)
        shared = max(SMALLEST_SHARE, budget // FEWEST_SEGMENTS_A_BUDGET)
        return min(self.segment_bytes or min(usual, shared), budget)


def parse(arguments: list[str] | None = None) -> Config:
    """Reads the command line; exits with usage and a sentence when it is wrong."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.config:
        # What the file says comes before what the command line says, which therefore wins.
        told = sys.argv[1:] if arguments is None else arguments
        chosen = parser.parse_args([*_from_file(parser, chosen.config), *told])
    return Config(
        instance=chosen.instance,
        socket=chosen.socket or address.user_socket(chosen.instance),
        socket_mode=chosen.socket_mode,
        memory=chosen.memory,
        segment_bytes=chosen.segment_bytes,
        max_page_bytes=chosen.max_page_bytes,
        index_entries=chosen.index_entries,
        pins=chosen.pins,
        keep=chosen.keep,
        fresh=chosen.fresh,
        stop_keeping=chosen.stop_keeping,
        log_level=chosen.log_level.upper(),
        tenants=dict(chosen.tenant),
        outside=_peer_options(parser, chosen),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nexuskvd",
        description="Keeps LLM inference state in shared memory and hands it to engine processes on this host.",
    )
    add = parser.add_argument
    add("--instance", default=address.DEFAULT_INSTANCE, help="name of this daemon on the host (%(default)s)")
    add("--socket", type=_told(address.parse), help="unix:PATH to listen on (the user's runtime directory)")
    add(
        "--socket-mode",
        type=_mode,
        default=0o600,
        help="permissions of the socket, octal (0600: this user alone)",
    )
    add(
        "--memory",
        type=_some_bytes,
        default=0,
        help="most shared memory to take, e.g. 4GiB (a quarter of what is free)",
    )
    add(
        "--segment-bytes",
        type=_some_bytes,
        default=0,
        help="size of one segment (1/64 of --memory, 64MiB at least, in less than 1GiB 1/16 of it)",
    )
    add(
        "--max-page-bytes",
        type=_told(parse_size),
        default=MAX_PAGE_BYTES,
        help="largest page that a descriptor may have (1GiB, and no more)",
    )
    add(
        "--index-entries",
        type=_count,
        default=0,
        help="most pages of one tenant (a page for every 16KiB of --memory)",
    )
    add("--pins", type=_count, default=16_384, help="most pages that one client holds at once (%(default)s)")
    add("--keep", action="store_true", help="when stopping, leave everything in place for the next daemon")
    add(
        "--fresh",
        action="store_true",
        help="drop what an earlier daemon of this instance left, and start empty",
    )
    add("--stop-keeping", action="store_true", help="make the running daemon stop as with --keep, and exit")
    add(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="what to log (%(default)s)",
    )
    add(
        "--config",
        type=Path,
        help="TOML file of options, named as here without the dashes; a list repeats one",
    )
    add(
        "--tenant",
        type=_tenant,
        action="append",
        default=[],
        metavar="UID=NAME",
        help="name of a user's tenant, the same on all hosts that share its pages (uid:UID); may be repeated",
    )
    _add_peer_options(parser)
    add("--version", action="version", version=f"nexuskvd {version('nexuskv')}")
    return parser


def _add_peer_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("other hosts").add_argument
    add("--listen", default="", help="tcp://host:port where peers connect")
    add("--advertise", default="", help="tcp://host:port where they reach this host (as --listen)")
    add(
        "--data",
        action="append",
        default=[],
        help="where they pull pages: rdma:, rdma://device, tcp: or scheme://host:port; may be repeated (tcp:)",
    )
    add("--peer", action="append", default=[], help="tcp://host:port of another host; may be repeated")
    add(
        "--directory",
        default="",
        help="redis://, rediss:// or redis+cluster:// URL where hosts find each other",
    )
    add(
        "--tls-certificate",
        default="",
        help="PEM file; its URIs nexuskv:tenant/NAME are what this host may see",
    )
    add("--tls-key", default="", help="PEM file of the certificate's private key")
    add(
        "--tls-authority",
        default="",
        help="PEM file of the authority that signed the certificates of all hosts",
    )
    add("--insecure-peers", action="store_true", help="without certificates, serve also beyond loopback")
    add(
        "--plain-tenant",
        action="append",
        default=[],
        help="tenant that peers without certificates see, e.g. uid:1000 (the daemon's own user)",
    )


def _peer_options(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> PeerOptions:
    tls = [chosen.tls_certificate, chosen.tls_key, chosen.tls_authority]
    if any(tls) and not all(tls):
        parser.error("--tls-certificate, --tls-key and --tls-authority go together")
    return PeerOptions(
        listen=chosen.listen,
        advertise=chosen.advertise,
        data=tuple(chosen.data),
        peers=tuple(dict.fromkeys(chosen.peer)),
        directory=chosen.directory,
        tls=tuple(tls) if all(tls) else (),
        insecure=chosen.insecure_peers,
        plain_tenants=frozenset(chosen.plain_tenant),
    )


def _from_file(parser: argparse.ArgumentParser, path: Path) -> list[str]:
    """The options in a file, as a command line would have them."""
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        parser.error(f"cannot read --config {path}: {error}")
    words: list[str] = []
    for name, value in table.items():
        for each in value if isinstance(value, list) else [value]:
            if each is True:
                words.append(f"--{name}")
            elif each is not False:
                words.append(f"--{name}={each}")
    return words


def _told(parse: Callable[[str], T]) -> Callable[[str], T]:
    def told(text: str) -> T:
        try:
            return parse(text)
        except NexusError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return told


def _some_bytes(text: str) -> int:
    nbytes = _told(parse_size)(text)
    if nbytes < FEWEST_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r}: nothing fits into less than {FEWEST_BYTES} bytes")
    return nbytes


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {2**31}")
    return int(text)


def _tenant(text: str) -> tuple[int, str]:
    uid, _, name = text.partition("=")
    if not uid.isdecimal() or not _TENANT.fullmatch(name):
        raise argparse.ArgumentTypeError(
            f"{text!r}: write UID=NAME, a name of 1 to 63 of [A-Za-z0-9._-]; others are named uid:UID"
        )
    return int(uid), name


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise argparse.ArgumentTypeError(f"{text!r} is no octal file mode such as 0660")
    return mode
