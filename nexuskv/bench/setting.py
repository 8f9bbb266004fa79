"""The stage of a measurement: a private daemon, and caches of pages with a wished-for size.

Owns how large the daemon's memory is for so many pages. Knows nothing of what is measured.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import nexuskv
from nexuskv.contract import KEY_BYTES, Flag, slot_bytes
from nexuskv.harness.daemon import PrivateDaemon

PAGE_TOKENS = 16
MODEL = "bench"
KIB, MIB = 1 << 10, 1 << 20


def descriptor(page_bytes: int) -> nexuskv.Descriptor:
    """Pages of exactly `page_bytes`, a multiple of 64: keys and values of one head, layer for layer."""
    head_dim = page_bytes // (2 * 2 * PAGE_TOKENS)
    return nexuskv.mha(
        f"bench-{page_bytes}",
        layers=1,
        kv_heads=1,
        head_dim=head_dim,
        dtype="bfloat16",
        engine_family="VLLM",
        page_tokens=PAGE_TOKENS,
        arrangement="interleaved",
        compatibility_flags=tuple(Flag),
    )


@contextmanager
def daemon_for(pages: int, page_bytes: int) -> Iterator[PrivateDaemon]:
    """A daemon with one segment that has room for just so many pages."""
    # One segment, because the floor copies into the same slots: none may be taken from elsewhere.
    size = str(pages * slot_bytes(page_bytes))
    entries = str(pages * 11 // 10 + 64)  # the share that the daemon would take is for pages of real sizes
    options = ("--memory", size, "--segment-bytes", size, "--index-entries", entries)
    with PrivateDaemon(new_instance(), *options) as daemon:
        yield daemon


def new_instance() -> str:
    """A name that no other run has."""
    return f"bench-{os.getpid()}-{secrets.token_hex(3)}"


def random_keys(count: int) -> list[bytes]:
    """Keys as good as any: those of real pages are hashes too."""
    drawn = os.urandom(count * KEY_BYTES)
    return [drawn[at : at + KEY_BYTES] for at in range(0, len(drawn), KEY_BYTES)]
