"""The suite `index`: what engines find without the daemon, and how soon a daemon that died is back.

Owns what is promised: names, bounds, and what each figure means. How each is measured is in the module of its group.
"""

from nexuskv.bench import in_c, resident, restart, scale
from nexuskv.bench.core import LMDB
from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.suite import Effort, Suite, Tell

VALID = "what it returns is valid inside its transaction only, while a NexusKV page stays pinned"

DEFINITIONS = (
    Definition("hit_1", "us", "<=", 1.2, "match one page and let it go, from Python; median"),
    Definition(
        "hit_1_lmdb", "us", ">=", 1.3, f"a read transaction with one get, against hit_1; {VALID}", LMDB
    ),
    Definition("hit_1_c", "ns", "<=", 150, "pin one page and unpin it, from C; median"),
    Definition("present_256", "us", "<=", 6, "look up a resident chain of 256 keys; median"),
    Definition(
        "present_256_lmdb",
        "us",
        ">=",
        8,
        "a read transaction that finds 256 keys with a cursor, against present_256",
        LMDB,
    ),
    Definition(
        "pinned_64", "pages/s", ">=", 2_500_000, "match 64 pages, list their handles, let them go; median"
    ),
    Definition("pinned_64_lmdb", "pages/s", ">=", None, f"a read transaction with 64 gets; {VALID}", LMDB),
    Definition(
        "hit_scale", "us", "<=", 2, "match a random page among 1,000,000 entries; median, against 10,000"
    ),
    Definition("hit_scale_8", "us", "<=", 2, "the same, with 8 clients attached"),
    Definition(
        "restart_1m",
        "s",
        "<=",
        3,
        "from the kill of a daemon with 1,000,000 entries until the next grants a page",
    ),
    Definition("restart_1m_failed", "hits", "<=", 0, "of an attached client, one after another meanwhile"),
)


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Measures group after group; each has a private daemon of its own."""
    for group in (resident, in_c, scale, restart):
        group.measure(effort, readings, tell)


SUITE = Suite("index", "engine processes that find pages without asking the daemon", DEFINITIONS, measure)
