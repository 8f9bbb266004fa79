"""The directory's server: Valkey or Redis, alone or as a cluster.

Owns the keys and commands, and is the only module that imports redis. Each command names one key, so that a cluster
may put it anywhere. Whatever goes wrong is BoardDown: what that means is the directory's affair. What stands there:

    nexuskv:page:KEY    set of hosts that have the page (KEY: 32 raw bytes); expires when nobody renewed it for long
    nexuskv:host:HOST   where a host is reached (HOST: 8 raw bytes, its boot epoch); expires soon when it does not live
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from nexuskv.errors import NexusError, StartupError

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

T = TypeVar("T")
PAGE, HOST = b"nexuskv:page:", b"nexuskv:host:"
SOME = 16
"""Hosts of a page that are looked at: more of them would only be more choice."""
COMMAND_SECONDS = 2.0
COMMANDS_AT_ONCE = 2000


class BoardDown(NexusError):
    """The directory's server did not do what it was asked; the sentence says why."""


class Board:
    """`url` is redis://, rediss://, or redis+cluster://host:port,host:port. Raises StartupError."""

    def __init__(self, url: str) -> None:
        if find_spec("redis") is None:
            raise StartupError("--directory needs the package redis: pip install 'nexuskv[directory]'")
        try:
            self._redis = _connected(url)
        except ValueError as error:
            raise StartupError(f"--directory {url!r}: {error}") from error

    async def hosts(self, page: bytes) -> list[bytes]:
        """Some of the hosts that say they have a page. Raises BoardDown."""
        found = await self._do(lambda redis: redis.srandmember(PAGE + page, SOME))
        return found if isinstance(found, list) else []

    async def address(self, host: bytes) -> bytes | None:
        """Where a host is reached, None when it does not live. Raises BoardDown."""
        found = await self._do(lambda redis: redis.get(HOST + host))
        return found if isinstance(found, bytes) else None

    async def renew(self, host: bytes, address: str, seconds: int) -> bool:
        """A host lives. Whether that stood there: if not, all that it said is gone too. Raises BoardDown."""
        return bool(await self._do(lambda redis: redis.set(HOST + host, address, ex=seconds, get=True)))

    async def note(self, host: bytes, pages: Sequence[bytes], seconds: int, *, there: bool) -> None:
        """A host has these pages now, or has them no more. Raises BoardDown."""
        for at in range(0, len(pages), COMMANDS_AT_ONCE):
            chunk = pages[at : at + COMMANDS_AT_ONCE]
            await self._do(partial(_noted, host=host, pages=chunk, seconds=seconds, there=there))

    async def leave(self, host: bytes) -> None:
        """A host is no more. Raises BoardDown."""
        await self._do(lambda redis: redis.delete(HOST + host))

    async def close(self) -> None:
        """Ends the connections."""
        await self._redis.aclose()

    async def _do(self, command: Callable[[Any], Awaitable[T]]) -> T:
        from redis.exceptions import RedisError  # noqa: PLC0415  # an optional package

        try:
            return await command(self._redis)
        except (RedisError, OSError, TimeoutError, ValueError, IndexError, KeyError) as error:
            # The latter three are what the client makes of a server that talks nonsense.
            raise BoardDown(f"{type(error).__name__}: {error}") from error


async def _noted(redis: Any, *, host: bytes, pages: Sequence[bytes], seconds: int, there: bool) -> None:
    pipeline = redis.pipeline(transaction=False)  # each command may go to another node of a cluster
    for page in pages:
        if there:
            pipeline.sadd(PAGE + page, host)
            pipeline.expire(PAGE + page, seconds)
        else:
            pipeline.srem(PAGE + page, host)
    await pipeline.execute()


def _connected(url: str) -> Redis | RedisCluster:
    from redis.asyncio import Redis  # noqa: PLC0415  # an optional package
    from redis.asyncio.cluster import ClusterNode, RedisCluster  # noqa: PLC0415  # likewise
    from redis.asyncio.retry import Retry  # noqa: PLC0415  # likewise
    from redis.backoff import NoBackoff  # noqa: PLC0415  # likewise

    once = Retry(NoBackoff(), 0)  # trying again is the directory's affair
    scheme, _, rest = url.partition("://")
    if scheme != "redis+cluster":
        return Redis.from_url(
            url, retry=once, socket_timeout=COMMAND_SECONDS, socket_connect_timeout=COMMAND_SECONDS
        )
    login, _, hosts = rest.rpartition("@")
    parts = [urlsplit(f"//{host}") for host in hosts.rstrip("/").split(",")]
    nodes = [ClusterNode(part.hostname or "", part.port or 6379) for part in parts]
    name, _, password = login.partition(":")
    return RedisCluster(
        startup_nodes=nodes, username=name or None, password=password or None, retry=once,
        cluster_error_retry_attempts=1,
        socket_timeout=COMMAND_SECONDS, socket_connect_timeout=COMMAND_SECONDS,
    )  # fmt: skip
