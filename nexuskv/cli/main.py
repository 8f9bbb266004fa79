"""The entry point `nexuskv`: finds the subcommand, and turns errors into exit codes.

Owns the exit codes (0 done, 1 failed, 2 usage, 130 interrupted) and the form of errors. Knows nothing of
what a subcommand does: each module registers itself through `add_parser(subparsers)` and names its
`run(args) -> int` as `func`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import msgspec

import nexuskv.bench.command
import nexuskv.demo.command
from nexuskv.cli import certs, descriptors, evict, explain, options, peers, schema, status
from nexuskv.errors import NexusError

COMMANDS = (
    status,
    peers,
    evict,
    descriptors,
    schema,
    explain,
    certs,
    nexuskv.demo.command,
    nexuskv.bench.command,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; `argv` without the program's name, by default the process's own."""
    args = _parser().parse_args(argv)
    try:
        code = int(args.func(args))
        sys.stdout.flush()
        return code
    except NexusError as error:
        _complain(error, as_json=args.json)
        return 1
    except BrokenPipeError:
        _close_stdout()
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nexuskv", description="A host-wide cache of LLM inference state in shared memory."
    )
    parser.add_argument("--version", action="version", version=f"nexuskv {version('nexuskv')}")
    parser.set_defaults(json=False, socket=None)
    options.add_json(parser)
    options.add_socket(parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    for subparser in subparsers.choices.values():
        subparser.conflict_handler = "resolve"  # a subcommand may have declared it itself
        options.add_json(subparser)
    return parser


def _close_stdout() -> None:
    """Lets the flush at exit go nowhere: it would complain of the reader's absence once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _complain(error: NexusError, *, as_json: bool) -> None:
    if as_json:
        text = msgspec.json.encode({"error": {"code": error.code, "message": str(error)}}).decode()
    else:
        text = f"nexuskv: {error}"
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
