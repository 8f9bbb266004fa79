"""What the peer half was told: where to listen, whom to know, and how to prove who is who.

Owns the spelling of addresses. Opens nothing.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from nexuskv.errors import LocalError, StartupError
from nexuskv_daemon.config import PeerOptions
from nexuskv_transport.base import Plain, Security, Tls
from nexuskv_transport.tcp.address import Endpoint, parse

PLAIN = Plain()
BATCH_BYTES = 128 << 20
"""What is pulled together, at most: each batch costs both daemons a few messages, and a lost one is pulled anew."""
BESIDE = {"tcp": 1, "rdma": 2}
"""Where pages are served when only the scheme was said: at so many ports after that of `--listen`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`listen` and `data` are addresses to bind, `advertise` where others reach this host; empty ones are not wanted.

    `tenants` are those that peers without certificates may see, `directory` the URL of a Valkey or Redis server.
    """

    listen: str = ""
    advertise: str = ""
    data: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    directory: str = ""
    security: Security = PLAIN
    tenants: frozenset[str] = frozenset()
    batch_bytes: int = BATCH_BYTES


def settings(said: PeerOptions, own_tenant: str, budget: int) -> Settings:
    """The options, checked. Raises StartupError.

    A batch takes half of the memory `budget` at most: its slots are granted all at once.
    """
    for address in (*said.peers, *filter(None, (said.listen, said.advertise))):
        endpoint(address)
    security: Security = Tls(*said.tls) if said.tls else Plain(anywhere=said.insecure)
    return Settings(
        listen=said.listen,
        advertise=said.advertise,
        data=said.data,
        peers=said.peers,
        directory=said.directory,
        security=security,
        tenants=said.plain_tenants or frozenset({own_tenant}),
        batch_bytes=min(BATCH_BYTES, budget // 2),
    )


def endpoint(address: str) -> Endpoint:
    """Host and port of "tcp://host:port". Raises StartupError."""
    try:
        return parse(address)
    except LocalError as error:
        raise StartupError(str(error)) from None


class DataAddress(NamedTuple):
    """Where pages are served: `opens` is for `open_transport`, `listens` for its transport to listen on."""

    opens: str
    listens: str

    @property
    def scheme(self) -> str:
        """Of both."""
        return scheme_of(self.listens)


def data_addresses(told: Settings) -> list[DataAddress]:
    """Where to serve pages: RDMA before the others, TCP if nothing was said. Raises StartupError."""
    said = told.data or (("tcp:",) if told.listen else ())
    return sorted((_data_address(told, each) for each in said), key=lambda each: each.scheme != "rdma")


def _data_address(told: Settings, said: str) -> DataAddress:
    """What is said in short, such as "rdma:", "rdma://DEVICE" and "tcp:", stands beside `--listen`."""
    scheme, place = scheme_of(said), said.partition(":")[2].removeprefix("//")
    if scheme not in BESIDE or ":" in place or (place and scheme != "rdma"):
        return DataAddress(said, said)
    if not told.listen:
        raise StartupError(f"--data {said} stands beside --listen: give that, or say {scheme}://HOST:PORT")
    host, port = endpoint(told.listen)
    listens = with_scheme(scheme, Endpoint(host, port + BESIDE[scheme] if port else 0))
    return DataAddress(said if place else reached_at(listens, told.advertise), listens)


def reached_at(address: str, advertise: str) -> str:
    """A data address as peers reach it: all addresses of this host stand for the advertised one."""
    scheme, _, rest = address.partition(":")
    if scheme not in BESIDE or not advertise:
        return address
    host, port = endpoint(f"tcp:{rest}")
    host = endpoint(advertise).host if is_anywhere(host) else host
    return with_scheme(scheme, Endpoint(host, port))


def with_scheme(scheme: str, place: Endpoint) -> str:
    """Host and port as an address of a transport."""
    return scheme + str(place).removeprefix("tcp")


def scheme_of(address: str) -> str:
    """What names the transport."""
    return address.partition(":")[0]


def is_anywhere(host: str) -> bool:
    """Whether it stands for all addresses of a host, and so tells others nothing."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
