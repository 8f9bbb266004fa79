"""`nexuskv peers`: which other hosts the daemon knows, and how quick and reliable the way to each is.

Owns the table. Knows nothing but the daemon's own figures.
"""

import argparse

from msgspec.structs import asdict
from rich.table import Table

from nexuskv.cli.options import Subparsers, add_socket, connect, console, print_json, wide_table
from nexuskv.protocol.hosts import PeerStats
from nexuskv.quantity import format_size


def add_parser(subparsers: Subparsers) -> None:
    """Registers `peers`."""
    parser = subparsers.add_parser("peers", help="show the hosts that pages are pulled from")
    add_socket(parser)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Prints what the daemon knows of other hosts."""
    with connect(args) as client:
        found = client.peers()
    if args.json:
        print_json({"directory": found.directory, "peers": [asdict(peer) for peer in found.peers]})
        return 0
    out = console()
    out.print(f"directory: {found.directory}")
    out.print(_table(found.peers) if found.peers else "no peers: start nexuskvd with --peer or --directory")
    return 0


def _table(peers: list[PeerStats]) -> Table:
    table = wide_table()
    for heading in ("peer", "instance", "state"):
        table.add_column(heading, overflow="fold")
    for heading in ("path", "latency", "bandwidth", "pages in", "out", "bad", "failures"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("last trouble", overflow="fold")
    for peer in peers:
        latency = f"{peer.latency * 1e6:,.0f} us" if peer.latency else "-"
        bandwidth = f"{format_size(int(peer.bandwidth))}/s" if peer.bandwidth else "-"
        counts = (f"{n:,}" for n in (peer.pages_in, peer.pages_out, peer.bad_pages, peer.failures))
        table.add_row(
            peer.address,
            peer.instance,
            peer.state,
            peer.path or "-",
            latency,
            bandwidth,
            *counts,
            "; ".join([peer.trouble] * bool(peer.trouble) + _elsewhere(peer)),
        )
    return table


def _elsewhere(peer: PeerStats) -> list[str]:
    """Why pages do not come over the other paths."""
    return [f"{path.name}: {path.trouble}" for path in peer.paths if path.trouble and path.name != peer.path]
