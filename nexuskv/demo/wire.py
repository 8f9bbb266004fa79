"""What the demo says to its engine processes and they answer: one JSON object a line, over stdin and stdout.

Owns the messages and their coding. Knows nothing of what an engine does with them.
"""

from collections.abc import Iterator
from typing import IO

import msgspec


class Start(msgspec.Struct, frozen=True, tag="start"):
    """First line to an engine: where the daemon is, and the descriptor of the pages (JSON)."""

    socket: str
    descriptor: msgspec.Raw


class Serve(msgspec.Struct, frozen=True, tag="serve"):
    """Reuse what is resident of this prompt, verify it, compute and store the rest."""

    hash_ids: tuple[int, ...]


class Recall(msgspec.Struct, frozen=True, tag="recall"):
    """Reuse what is resident of this prompt and verify it; store nothing."""

    hash_ids: tuple[int, ...]


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Keep what is resident of this prompt pinned until this process dies."""

    hash_ids: tuple[int, ...]


class Abandon(msgspec.Struct, frozen=True, tag="abandon"):
    """Reserve and fill the pages of this prompt, and never commit them."""

    hash_ids: tuple[int, ...]


Order = Start | Serve | Recall | Hold | Abandon


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Answers `Start`; `private_bytes` is the memory that this process shares with nobody."""

    pid: int
    private_bytes: int


class Served(msgspec.Struct, frozen=True, tag="served"):
    """Answers `Serve` and `Recall`: counts in pages, durations in nanoseconds.

    `outside` counts hit pages whose bytes do not lie in a mapped shared segment, so were copied on the way.
    """

    hit: int
    outside: int
    stored: int
    match_ns: int
    reserve_ns: int
    commit_ns: int
    private_bytes: int


class Holding(msgspec.Struct, frozen=True, tag="holding"):
    """Answers `Hold` and `Abandon`: pages pinned, or reserved and not committed."""

    pages: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Answers any order that could not be carried out; the engine ends after it."""

    sentence: str


Answer = Ready | Served | Holding | Failed


def write_line(stream: IO[bytes], message: Order | Answer) -> None:
    """Sends one message at once."""
    stream.write(msgspec.json.encode(message) + b"\n")
    stream.flush()


def orders(stream: IO[bytes]) -> Iterator[Order]:
    """Orders until the other side closes the pipe or dies."""
    decoder = msgspec.json.Decoder(Order)
    yield from map(decoder.decode, stream)


def read_answer(stream: IO[bytes]) -> Answer | None:
    """The next answer; None when the engine is gone."""
    line = stream.readline()
    return msgspec.json.decode(line, type=Answer) if line.endswith(b"\n") else None
