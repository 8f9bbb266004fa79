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
from typing import NoReturn

import msgspec

import nexuskv.bench.command
import nexuskv.demo.command
from nexuskv.cli import certs, descriptors, evict, explain, options, peers, schema, status
from nexuskv.errors import LocalError, NexusError

USAGE = "usage"
"""Code of the error that a wrong command line is."""
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


class UsageError(Exception):
    """A command line that is wrong; `usage` says how it goes."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that a wrong command line is told in the form that was asked for."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.format_usage()}{self.prog}: error: {message}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; `argv` without the program's name, by default the process's own."""
    as_json = "--json" in (sys.argv[1:] if argv is None else argv)
    try:
        args = _parser().parse_args(argv)
        code = int(args.func(args))
        sys.stdout.flush()
        return code
    except UsageError as error:
        _complain(USAGE, str(error), error.usage, as_json=as_json)
        return 2
    except NexusError as error:
        _complain(error.code, str(error), f"nexuskv: {error}", as_json=as_json)
        return 1
    except BrokenPipeError:
        _close_stdout()
        return 1
    except OSError as error:  # a full disk, most likely: what the commands expect they explain themselves
        _complain(LocalError.code, str(error), f"nexuskv: {error}", as_json=as_json)
        _close_stdout()
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="nexuskv", description="A host-wide cache of LLM inference state in shared memory.")
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


def _complain(code: str, message: str, text: str, *, as_json: bool) -> None:
    if as_json:
        text = msgspec.json.encode({"error": {"code": code, "message": message}}).decode()
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
