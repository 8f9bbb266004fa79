"""`nexuskv evict`: makes room by hand.

Owns which of the ways to name what goes is asked for. Knows nothing of the order in which pages go: the
daemon decides.
"""

import argparse

from nexuskv.cli.options import Subparsers, add_socket, connect, print_json, size
from nexuskv.quantity import format_size


def add_parser(subparsers: Subparsers) -> None:
    """Registers `evict`; one of --descriptor, --bytes and --all must be given."""
    parser = subparsers.add_parser("evict", help="evict pages, by default those that no reader holds")
    parser.add_argument("--descriptor", metavar="ID", help="only pages of this descriptor")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--bytes", type=size, metavar="SIZE", help="at least this much, such as 512MiB")
    amount.add_argument("--all", action="store_true", help="held pages too: they go with their last reader")
    add_socket(parser)
    parser.set_defaults(func=run, usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Evicts, and says what went."""
    if args.descriptor is None and args.bytes is None and not args.all:
        args.usage_error("say what to evict: --descriptor ID, --bytes SIZE or --all")
    with connect(args) as client:
        evicted = client.evict(args.descriptor, args.bytes, everything=args.all)
    if args.json:
        print_json({"pages": evicted.pages, "bytes": evicted.bytes, "retiring": evicted.retiring})
        return 0
    waiting = f"; {evicted.retiring:,} more wait for their last reader" if evicted.retiring else ""
    print(f"evicted {evicted.pages:,} pages, {format_size(evicted.bytes)}{waiting}")
    return 0
