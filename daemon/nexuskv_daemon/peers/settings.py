"""What the peer half was told: where to listen, whom to know, and how to prove who is who.

Owns the spelling of addresses. Opens nothing.
"""

from dataclasses import dataclass
from ipaddress import ip_address

from nexuskv.errors import LocalError, StartupError
from nexuskv_daemon.config import PeerOptions
from nexuskv_transport.base import Plain, Security, Tls
from nexuskv_transport.tcp.address import Endpoint, parse

PLAIN = Plain()


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


def settings(said: PeerOptions, own_tenant: str) -> Settings:
    """The options, checked. Raises StartupError."""
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
    )


def endpoint(address: str) -> Endpoint:
    """Host and port of "tcp://host:port". Raises StartupError."""
    try:
        return parse(address)
    except LocalError as error:
        raise StartupError(str(error)) from None


def is_anywhere(host: str) -> bool:
    """Whether it stands for all addresses of a host, and so tells others nothing."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
