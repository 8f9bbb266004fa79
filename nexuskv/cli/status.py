"""`nexuskv status`: what the daemon holds, for whom, and how well it hits.

Owns the table. Knows nothing but the daemon's own figures.
"""

import argparse
from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import asdict
from rich.console import Console
from rich.table import Table

from nexuskv.cli.options import Subparsers, add_socket, connect, console, print_json, wide_table
from nexuskv.protocol.messages import ArenaStats, Stats
from nexuskv.quantity import format_size


def add_parser(subparsers: Subparsers) -> None:
    """Registers `status`."""
    parser = subparsers.add_parser("status", help="show memory, arenas, hit rates and sessions of the daemon")
    add_socket(parser)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Prints the daemon's figures."""
    with connect(args) as client:
        stats = client.stats()
    if args.json:
        print_json(_plain(stats))
    else:
        _print(console(), stats)
    return 0


def _plain(stats: Stats) -> Mapping[str, object]:
    """The figures by name (on the wire they are an array), and each arena's hit rate."""
    figures = {name: getattr(stats, name) for name in stats.__struct_fields__ if name != "id"}
    return figures | {"arenas": [asdict(arena) | {"hit_rate": hit_rate(arena)} for arena in stats.arenas]}


def hit_rate(arena: ArenaStats) -> float | None:
    """Hit pages over all that were asked for; None when none was."""
    asked = arena.hits + arena.misses
    return arena.hits / asked if asked else None


def _print(out: Console, stats: Stats) -> None:
    used, budget = format_size(stats.memory_used), format_size(stats.memory_budget)
    uptime = timedelta(seconds=int(stats.uptime))
    out.print(f"instance {stats.instance}, release {stats.release}, up {uptime}")
    out.print(f"memory {used} of {budget}; sessions: {stats.sessions}")
    out.print(
        _table(stats.arenas) if stats.arenas else "no arenas: no engine has registered a descriptor yet"
    )


def _table(arenas: list[ArenaStats]) -> Table:
    table = wide_table()
    for heading in ("descriptor", "tenant"):
        table.add_column(heading, overflow="fold")
    for heading in ("pages", "bytes", "pinned", "writing", "retiring", "evicted", "hit rate"):
        table.add_column(heading, justify="right", overflow="fold")
    for arena in arenas:
        table.add_row(*_cells(arena))
    return table


def _cells(arena: ArenaStats) -> list[str]:
    rate = hit_rate(arena)
    counts = (arena.pinned, arena.writing, arena.retiring, arena.evicted)
    return [
        arena.descriptor_id,
        arena.tenant,
        f"{arena.resident:,}",
        format_size(arena.resident * arena.page_bytes),
        *(f"{count:,}" for count in counts),
        "-" if rate is None else f"{rate:.1%}",
    ]
