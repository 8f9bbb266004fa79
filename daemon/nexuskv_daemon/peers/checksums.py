"""Checksums of pages: XXH3-64, made where a page is first served and checked where it arrives.

Owns the threads that compute them; xxhash lets go of the interpreter lock meanwhile. Not made at commit: that would
cost every commit a pass over the page, and most pages never leave their host.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import xxhash

THREADS = 2
AT_ONCE = 256 << 10
"""Bytes that are summed in the loop itself: handing them to a thread would take longer."""


def checksum(page: memoryview) -> int:
    """XXH3-64 of a page, never 0, which stands for "not known"."""
    return xxhash.xxh3_64_intdigest(page) or 1


def _all(pages: Sequence[memoryview]) -> list[int]:
    return [checksum(page) for page in pages]


class Summer:
    """Computes checksums of many pages without holding up the loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "checksum")

    async def sums(self, pages: Sequence[memoryview]) -> list[int]:
        """One checksum a page."""
        if sum(page.nbytes for page in pages) <= AT_ONCE:
            return _all(pages)
        loop = asyncio.get_running_loop()
        halves = pages[: len(pages) // 2], pages[len(pages) // 2 :]
        first, second = await asyncio.gather(
            *(loop.run_in_executor(self._threads, _all, half) for half in halves)
        )
        return first + second

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=True)
