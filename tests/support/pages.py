"""Pages whose bytes follow from their key, so that whoever reads one knows what must stand there."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

import nexuskv
from nexuskv.contract import Descriptor, Flag


def small(
    name: str = "small", *, kib: int = 4, page_tokens: int = 4, flags: Iterable[str] = tuple(Flag)
) -> Descriptor:
    """A descriptor with pages of `kib` KiB, which may be used in every way."""
    return nexuskv.mha(
        name, layers=1, kv_heads=kib * 64 // page_tokens, head_dim=4, page_tokens=page_tokens,
        dtype="float16", engine_family="VLLM", compatibility_flags=flags,
    )  # fmt: skip


def keys(cache: nexuskv.Cache, pages: int, branch: int = 0) -> list[bytes]:
    """Keys of a chain of `pages` pages; two branches share none."""
    return cache.keys([branch] * (pages * cache.descriptor.page_tokens))


def content(key: bytes, nbytes: int) -> npt.NDArray[np.uint8]:
    """What a page of `nbytes` with that key holds."""
    seed = np.frombuffer(blake2b(key, digest_size=64).digest(), np.uint8)
    return np.resize(seed, nbytes)


def fill(pages: Iterable[nexuskv.WritablePage]) -> None:
    """Writes the content of each page."""
    for page in pages:
        page.buffer[...] = content(page.key, page.buffer.nbytes)


def put(cache: nexuskv.Cache, wanted: list[bytes]) -> int:
    """Computes and commits the absent ones of `wanted`; returns how many there were."""
    with cache.reserve(wanted) as reservation:
        fill(reservation)
    return len(reservation)


def intact(hit: nexuskv.Hit) -> bool:
    """Whether every byte of every page is what its key says."""
    return all(np.array_equal(page.buffer, content(page.key, page.buffer.nbytes)) for page in hit)


def verified(cache: nexuskv.Cache, wanted: list[bytes]) -> int:
    """How many leading pages of `wanted` are there; every byte of them is checked."""
    with cache.match(wanted) as hit:
        assert intact(hit)
        return len(hit)
