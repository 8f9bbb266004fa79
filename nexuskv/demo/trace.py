"""Reads request traces in the Mooncake format: one JSON object a line, one id for 512 prompt tokens.

Owns the format, its errors, and the token ids that stand for an anonymised block. Knows nothing of caches:
a line is read, checked and handed on, so a file of any size passes through in constant memory.
"""

from collections.abc import Iterator
from importlib.resources.abc import Traversable
from itertools import islice
from typing import IO, Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from nexuskv.errors import LocalError

BLOCK_TOKENS = 512
MAX_LINE_BYTES = 16 * 1024 * 1024

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class TraceError(LocalError, ValueError):
    """A trace that cannot be read; the sentence names the file, the line and what is wrong with it."""

    code = "bad_trace"


class TraceRequest(msgspec.Struct, frozen=True):
    """One request: arrival in ms, prompt and answer in tokens, one id for each block of the prompt."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Annotated[int, msgspec.Meta(gt=0, lt=2**40)]
    output_length: Count
    hash_ids: tuple[Count, ...]

    def __post_init__(self) -> None:
        blocks = -(-self.input_length // BLOCK_TOKENS)
        if len(self.hash_ids) != blocks:
            raise ValueError(
                f"{self.input_length} prompt tokens are {blocks} blocks of {BLOCK_TOKENS},"
                f" but there are {len(self.hash_ids)} hash_ids"
            )

    def tokens_in(self, blocks: int) -> int:
        """Prompt tokens in the first `blocks` blocks; the last block of a prompt may be partly filled."""
        return min(self.input_length, blocks * BLOCK_TOKENS)


class Trace:
    """The first `limit` requests of a file, or all of them; every iteration opens the file anew.

    Raises TraceError while iterating, at the first line that is not a request, and when there is none at all.
    """

    def __init__(self, source: Traversable, limit: int | None = None) -> None:
        self._source = source
        self._limit = limit

    def __iter__(self) -> Iterator[TraceRequest]:
        empty = True
        for request in islice(self._requests(), self._limit):
            empty = False
            yield request
        if empty:
            raise TraceError(f"{self._source}: holds no request; expected one JSON object a line")

    def _requests(self) -> Iterator[TraceRequest]:
        decoder = msgspec.json.Decoder(TraceRequest)
        try:
            with self._source.open("rb") as file:
                yield from (
                    _request(decoder, line, f"{self._source}:{number}") for number, line in _lines(file)
                )
        except OSError as error:
            raise TraceError(f"{self._source}: cannot be read: {error.strerror}") from error


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; never more than MAX_LINE_BYTES (and one) of one of them."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
        if line.strip():
            yield number, line


def _request(decoder: msgspec.json.Decoder[TraceRequest], line: bytes, place: str) -> TraceRequest:
    if len(line) > MAX_LINE_BYTES:
        raise TraceError(f"{place}: the line is longer than {MAX_LINE_BYTES} bytes; this is no request trace")
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{place}: not a request: {error}") from error


def token_ids(hash_ids: tuple[int, ...]) -> npt.NDArray[np.uint32]:
    """Token ids that stand for the blocks of an anonymised prompt: (512 * len(hash_ids),) uint32.

    A block's id is written as four digits of base 2**16 and repeated to 512 tokens: equal ids give equal
    tokens, different ids different ones, and every token lies in Llama-3's vocabulary.
    """
    ids = np.array(hash_ids, dtype=np.uint64)
    digits = (ids[:, None] >> np.array([0, 16, 32, 48], dtype=np.uint64)) & np.uint64(0xFFFF)
    return np.tile(digits.astype(np.uint32), (1, BLOCK_TOKENS // 4)).reshape(-1)
