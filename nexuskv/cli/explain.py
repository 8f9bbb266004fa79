"""`nexuskv explain`: whether state is worth fetching, over which path, and by which numbers.

Owns how costs and peers are written on a command line. Shared memory is measured on this machine, what computing costs
and what is resident is said. A daemon is asked for its peers alone, and only on request.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from nexuskv.cli.options import Subparsers, add_socket, connect, console, print_json, size, wide_table
from nexuskv.client.fetching import way_of
from nexuskv.contract import PRESETS, Descriptor, from_json
from nexuskv.errors import LocalError
from nexuskv.gain import ComputeCost, Explanation, Gain, MeasuredPath, Offer, Paths, explain
from nexuskv.quantity import format_size

MAX_TOKENS = 2**32 - 1
"""Their bytes fit 64 bits, whatever a page holds."""


def add_parser(subparsers: Subparsers) -> None:
    """Registers `explain`."""
    parser = subparsers.add_parser(
        "explain", help="say whether fetching a context beats computing it, and why"
    )
    parser.add_argument(
        "descriptor", help="a preset of `nexuskv descriptors`, or a file with a descriptor's JSON"
    )
    parser.add_argument("--tokens", type=_count, required=True, metavar="N", help="length of the context")
    parser.add_argument("--resident", type=_count, metavar="N", help="tokens of it on this host (all)")
    parser.add_argument("--read", type=size, metavar="SIZE", help="bytes of it that are read (all)")
    parser.add_argument(
        "--seconds-per-token", type=_seconds, metavar="S", help="what computing a token costs"
    )
    parser.add_argument(
        "--seconds-per-token-squared", type=_seconds, default=0.0, metavar="S", help="and its attention"
    )
    parser.add_argument(
        "--prefill", type=_prefill, action="append", default=[], metavar="TOKENS:SECONDS",
        help="a prefill that was measured, instead of --seconds-per-token; more of them make a better fit",
    )  # fmt: skip
    parser.add_argument(
        "--peer", type=_peer, action="append", default=[], metavar="NAME:SECONDS:SIZE",
        help="a peer with the whole context: path, latency, and bandwidth a second, such as rdma:5e-6:12GiB",
    )  # fmt: skip
    parser.add_argument(
        "--peers", action="store_true",
        help="the daemon's peers too, each with the whole context over its path as measured so far",
    )  # fmt: skip
    add_socket(parser)
    parser.set_defaults(func=run, usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Prints the decision."""
    if (args.seconds_per_token is None) == (not args.prefill):
        args.usage_error("say what computing costs: --seconds-per-token S, or --prefill TOKENS:SECONDS")
    explanation = _explain(args, _descriptor(args.descriptor))
    if args.json:
        print_json(explanation)
        return 0
    console().print(_table(explanation))
    print(f"{explanation.decision}: {explanation.reason}")
    return 0


def _explain(args: argparse.Namespace, descriptor: Descriptor) -> Explanation:
    pages = args.tokens // descriptor.page_tokens
    resident = args.tokens if args.resident is None else min(args.resident, args.tokens)
    offers = [Offer("", pages, path) for path in args.peer]
    offers += _peers(args, pages) if args.peers else []
    local = Paths().shared_memory
    return explain(
        descriptor, _cost(args, descriptor), local, resident // descriptor.page_tokens, offers, args.read
    )


def _peers(args: argparse.Namespace, pages: int) -> list[Offer]:
    with connect(args) as client:
        known = client.peers().peers
    return [Offer(peer.address, pages, way_of(peer)) for peer in known if peer.state == "connected"]


def _cost(args: argparse.Namespace, descriptor: Descriptor) -> ComputeCost:
    gain = Gain(descriptor, Paths())
    if args.seconds_per_token is not None:
        gain.declare(args.seconds_per_token, args.seconds_per_token_squared)
    for tokens, seconds in args.prefill:
        gain.observe(tokens, seconds)
    return gain.cost


def _descriptor(name: str) -> Descriptor:
    if name in PRESETS:
        return PRESETS[name]
    try:
        return from_json(Path(name).read_bytes())
    except OSError as error:
        raise LocalError(
            f"{name!r} is no preset, and no file that can be read ({error.strerror}): see `nexuskv descriptors`"
        ) from error


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text, re.ASCII) or int(text) > MAX_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens up to {MAX_TOKENS}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, such as 0.25 or 5e-6")
    return seconds


def _prefill(text: str) -> tuple[int, float]:
    tokens, _, seconds = text.partition(":")
    return _count(tokens), _seconds(seconds)


def _peer(text: str) -> MeasuredPath:
    name, _, rest = text.partition(":")
    seconds, _, bandwidth = rest.partition(":")
    try:
        return MeasuredPath(name, _seconds(seconds), size(bandwidth))
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _table(explanation: Explanation) -> Table:
    table = wide_table()
    for heading in ("way", "path", "peer"):
        table.add_column(heading, overflow="fold")
    for heading in ("up to token", "bytes", "compute s", "cache s", "gain s"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in _rows(explanation):
        table.add_row(*row)
    return table


def _rows(explanation: Explanation) -> Iterator[tuple[str, ...]]:
    for option in explanation.options:
        times = (
            f"{each:.4g}" for each in (option.compute_seconds, option.cache_seconds, option.gain_seconds)
        )
        yield (
            option.decision,
            option.path,
            option.peer,
            f"{option.boundary_tokens:,}",
            format_size(option.nbytes),
            *times,
        )
