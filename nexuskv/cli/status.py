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
from nexuskv.protocol.messages import Stats
from nexuskv.protocol.stats import ArenaStats, TenantStats
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
    """The figures by name (on the wire they are an array), and each tenant's hit rate."""
    figures = {name: getattr(stats, name) for name in stats.__struct_fields__ if name != "id"}
    return figures | {
        "tenants": [asdict(tenant) | {"hit_rate": hit_rate(tenant)} for tenant in stats.tenants]
    }


def hit_rate(tenant: TenantStats) -> float | None:
    """Hit pages over all that were asked for; None when none was."""
    asked = tenant.hits + tenant.misses
    return tenant.hits / asked if asked else None


def _print(out: Console, stats: Stats) -> None:
    used, budget = format_size(stats.memory_used), format_size(stats.memory_budget)
    uptime = timedelta(seconds=int(stats.uptime))
    out.print(f"instance {stats.instance}, release {stats.release}, up {uptime}")
    out.print(f"memory {used} of {budget}; sessions: {stats.sessions}")
    if not stats.arenas:
        out.print("no arenas: no engine has registered a descriptor yet")
        return
    out.print(_tenants(stats.tenants))
    out.print(_arenas(stats.arenas))


def _tenants(tenants: list[TenantStats]) -> Table:
    table = wide_table()
    table.add_column("tenant", overflow="fold")
    for heading in ("hit rate", "pages hit", "missed", "pinned now", "index"):
        table.add_column(heading, justify="right", overflow="fold")
    for tenant in tenants:
        rate = hit_rate(tenant)
        counts = (f"{count:,}" for count in (tenant.hits, tenant.misses, tenant.pinned))
        index = f"{tenant.entries:,} of {tenant.index_entries:,}"
        table.add_row(tenant.tenant, "-" if rate is None else f"{rate:.1%}", *counts, index)
    return table


def _arenas(arenas: list[ArenaStats]) -> Table:
    table = wide_table()
    for heading in ("descriptor", "tenant"):
        table.add_column(heading, overflow="fold")
    for heading in ("pages", "bytes", "writing", "retiring", "evicted", "branches"):
        table.add_column(heading, justify="right", overflow="fold")
    for arena in arenas:
        table.add_row(*_cells(arena))
    return table


def _cells(arena: ArenaStats) -> list[str]:
    counts = (arena.writing, arena.retiring, arena.evicted, arena.branches)
    return [
        arena.descriptor_id,
        arena.tenant,
        f"{arena.resident:,}",
        format_size(arena.resident * arena.page_bytes),
        *(f"{count:,}" for count in counts),
    ]
