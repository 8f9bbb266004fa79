"""What the subcommands share: types of arguments, how they reach the daemon, and how JSON is printed.

Owns the shape of `--json` output. Knows nothing of any one subcommand.
"""

import argparse
import sys
from typing import Any, Protocol

import msgspec
from nexuskv.client.client import Client

import nexuskv
from nexuskv.errors import LocalError
from nexuskv.quantity import parse_size


class Subparsers(Protocol):
    """What `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, /, **options: Any) -> argparse.ArgumentParser: ...


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds `--json` and `--socket`; a subcommand that is not given them leaves what stood before it alone."""
    suppress = argparse.SUPPRESS
    parser.add_argument("--json", action="store_true", default=suppress, help="print JSON, errors included")
    parser.add_argument(
        "--socket",
        default=suppress,
        metavar="unix:PATH",
        help="the daemon's socket; default: NEXUSKV_SOCKET, the system's, then the user's",
    )


def size(text: str) -> int:
    """An argument such as 512MiB, in bytes."""
    try:
        return parse_size(text)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def connect(args: argparse.Namespace) -> Client:
    """A session with the daemon that the options name."""
    return nexuskv.connect(args.socket)


def print_json(value: object) -> None:
    """Writes structs, dicts and lists as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")
