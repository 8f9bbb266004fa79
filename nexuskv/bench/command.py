"""The subcommand `nexuskv bench`: measures each figure against a floor of the same run.

Owns the options. Knows nothing of what is measured.
"""

import argparse
from typing import Any, Protocol


class Subparsers(Protocol):
    """What `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, /, **options: Any) -> argparse.ArgumentParser: ...


def add_parser(subparsers: Subparsers) -> None:
    """Registers `bench`."""
    parser = subparsers.add_parser("bench", help="measure, each figure against a floor of the same run")
    parser.set_defaults(func=run)


def run(_: argparse.Namespace) -> int:
    """Runs no suite: there is none yet."""
    return 0
