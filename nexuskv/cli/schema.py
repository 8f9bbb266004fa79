"""`nexuskv schema`: the JSON Schema of descriptors, for engines that are not written in Python.

Owns printing it. Knows nothing of what is in it.
"""

import argparse

from nexuskv.cli.options import Subparsers, print_json
from nexuskv.contract import json_schema


def add_parser(subparsers: Subparsers) -> None:
    """Registers `schema`; its output is JSON with and without `--json`."""
    parser = subparsers.add_parser("schema", help="print the JSON Schema of descriptors")
    parser.set_defaults(func=run)


def run(_: argparse.Namespace) -> int:
    """Prints the schema."""
    print_json(json_schema())
    return 0
