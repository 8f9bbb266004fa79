"""What the subcommands share: types of arguments, how they reach the daemon, and how JSON is printed.

Owns the shape of `--json` output. Knows nothing of any one subcommand.
"""

import argparse
import sys
from typing import Any, Protocol

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import nexuskv
from nexuskv.client.client import Client
from nexuskv.errors import LocalError
from nexuskv.quantity import parse_size


class Subparsers(Protocol):
    """What `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, /, **options: Any) -> argparse.ArgumentParser: ...


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`; where it is not given, what was said before the subcommand holds."""
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, errors included"
    )


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Adds `--socket`; where it is not given, what was said before the subcommand holds."""
    parser.add_argument(
        "--socket",
        default=argparse.SUPPRESS,
        metavar="unix:PATH",
        help="the daemon's socket; default: NEXUSKV_SOCKET, the system's, then the user's",
    )


def size(text: str) -> int:
    """An argument such as 512MiB, in bytes; more than none."""
    try:
        nbytes = parse_size(text)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not nbytes:
        raise argparse.ArgumentTypeError("must be more than 0 bytes")
    return nbytes


def connect(args: argparse.Namespace) -> Client:
    """A session with the daemon that the options name."""
    return nexuskv.connect(args.socket)


def console() -> Console:
    """Where tables go; in a pipe or a file they are as wide as they need to be."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=max(terminal.width, 160))


def wide_table() -> Table:
    """A table that wastes no columns, for eight of them on a terminal of 80 characters."""
    return Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def print_json(value: object) -> None:
    """Writes structs, dicts and lists as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")
