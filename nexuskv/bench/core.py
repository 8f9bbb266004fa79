"""The suite `core`: one daemon, one engine process, one kind of page.

Owns what is promised: names, bounds, and what each figure means. How each is measured is in the module of its group.
"""

from nexuskv.bench import entries, hits, latency, puts
from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.suite import Effort, Suite, Tell

PING_PONG = "against a bare 64-byte ping-pong of two Python processes over the same kind of socket"
COPIES = "against plain numpy copies of the same pages into the same slots"
LMDB = "LMDB on tmpfs"

DEFINITIONS = (
    Definition("socket_get", "us", "<=", 2.5, f"match one page, view it, let it go; median, {PING_PONG}"),
    Definition("lookup_256", "us", "<=", 12, f"look up a resident chain of 256 keys; median, {PING_PONG}"),
    Definition("match_256", "us", "<=", None, f"match 256 pages, let them go; median, {PING_PONG}"),
    Definition("handles_64", "us", "<=", 12, f"match 64 pages, list their handles; median, {PING_PONG}"),
    Definition(
        "put_64k_single", "GB/s", ">=", 0.4, f"64 KiB pages, reserved 64 ahead, committed singly, {COPIES}"
    ),
    Definition("put_64k_single_lmdb", "GB/s", ">=", None, "a transaction a page", LMDB),
    Definition("put_64k_batch", "GB/s", ">=", 0.65, f"64 KiB pages, reserved and committed by 64, {COPIES}"),
    Definition("put_64k_batch_lmdb", "GB/s", ">=", None, "a transaction for 64 pages", LMDB),
    Definition("put_1mib", "GB/s", ">=", 0.75, f"1 MiB pages, reserved and committed by 64, {COPIES}"),
    Definition("put_1mib_lmdb", "GB/s", ">=", None, "a transaction for 64 pages", LMDB),
    Definition("hit_copies", "B", "<=", 0, "bytes of hit pages that lie outside the mapped shared segments"),
    Definition("entry_bytes", "B", "<=", 400, "private memory of the daemon for one of a million entries"),
    Definition(
        "lookup_scale", "us", "<=", 1.5, "look up 256 keys among 1,000,000 entries; median, against 10,000"
    ),
)


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Measures group after group; each has a private daemon of its own."""
    for group in (latency, puts, hits, entries):
        group.measure(effort, readings, tell)


SUITE = Suite("core", "one daemon and one engine process on one host", DEFINITIONS, measure)
