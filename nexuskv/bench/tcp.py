"""The suite `tcp`: pages pulled from another process over TCP, on this host.

Owns what is promised: names, bounds, and what each figure means. How each is measured is in `pulls` and `under_pull`.

Judged is the placement on two CPUs, as two hosts have them. On one CPU all time goes into copies, and iperf3 copies one
megabyte again and again, which stays in the cache, where pages come out of one arena and go into another.
"""

from nexuskv.bench import under_pull
from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.measure import Placement
from nexuskv.bench.suite import Effort, Suite, Tell

TWO_HOSTS = (Placement.APART,)
IPERF = "against one stream of iperf3 -l 1M over loopback"

DEFINITIONS = (
    Definition(
        "tcp_1mib",
        "GB/s",
        ">=",
        0.75,
        f"pull 1 MiB pages by 16, 4 calls outstanding, {IPERF}",
        judged=TWO_HOSTS,
    ),
    Definition(
        "tcp_64k",
        "GB/s",
        ">=",
        0.6,
        f"pull 64 KiB pages by 64, 4 calls outstanding, {IPERF}",
        judged=TWO_HOSTS,
    ),
    Definition(
        "tcp_page_latency",
        "us",
        "<=",
        4,
        "pull one 64 KiB page; median, against a ping-pong of 64 bytes of two Python processes over TCP",
        judged=TWO_HOSTS,
    ),
    Definition(
        "tcp_page_latency_whole",
        "us",
        "<=",
        None,
        "the same, against a ping-pong in which 64 KiB come back, received in one call",
        judged=TWO_HOSTS,
    ),
    Definition(
        "local_under_pull",
        "us",
        "<=",
        2,
        "match one page and let it go while a pull from another daemon runs; 99th percentile, against that without",
    ),
    Definition("local_under_pull_p999", "us", "<=", None, "the same, one hit in a thousand"),
)


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Measures transports against one serving process, and hits beside two daemons."""
    from nexuskv.bench import pulls  # noqa: PLC0415  # nothing else of nexuskv needs a transport

    pulls.measure(effort, readings, tell)
    under_pull.measure(effort, readings, tell)


SUITE = Suite("tcp", "pages pulled from another process over TCP on loopback", DEFINITIONS, measure)
