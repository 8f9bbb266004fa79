"""The subcommand `nexuskv demo`: its options, its progress bar, and what goes to which stream.

Owns the terminal: the table (or JSON) goes to stdout, the bar to stderr. Knows nothing of the plot.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Protocol

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nexuskv.data import mooncake_slice
from nexuskv.demo.ideal import Survey
from nexuskv.demo.report import Report, print_report, print_scale
from nexuskv.demo.run import Advance, Demo
from nexuskv.demo.scale import default_memory, plan
from nexuskv.demo.trace import Trace, TraceRequest
from nexuskv.errors import LocalError
from nexuskv.harness.arguments import count
from nexuskv.harness.daemon import ending_on_sigterm
from nexuskv.quantity import parse_size


class Subparsers(Protocol):
    """What `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, /, **options: Any) -> argparse.ArgumentParser: ...


def add_parser(subparsers: Subparsers) -> None:
    """Registers `demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="the main job on real input, in about a minute",
        description="Serves a real request trace with engine processes that share the memory of one private"
        " daemon, kills two of them, and checks that a third finds every byte.",
    )
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="a trace in the Mooncake format; default: a slice"
    )
    parser.add_argument("--requests", type=count, metavar="N", help="serve the first N requests only")
    parser.add_argument(
        "--memory", type=_size, metavar="SIZE", help="shared memory to use; default: by what is free"
    )
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Runs the demo. Raises NexusError when it cannot run or a promise is broken."""
    console = Console(quiet=args.json, highlight=False)
    report = _run(Trace(args.trace or mooncake_slice(), args.requests), args.memory, console)
    if args.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    else:
        print_report(console, report)
    return 0


def _run(trace: Trace, memory: int | None, console: Console) -> Report:
    with ending_on_sigterm(), _progress(quiet=console.quiet) as progress:
        task = progress.add_task("reading", total=None)
        survey = Survey(trace)
        chosen = plan(survey, memory or default_memory())
        print_scale(console, survey, chosen)
        progress.reset(task, total=2 * survey.requests)
        return Demo(trace, survey, chosen, _advance(progress, task)).run()


def _advance(progress: Progress, task: Any) -> Advance:
    def advance(engine: str, request: TraceRequest) -> None:
        progress.update(
            task, advance=1, description=f"{engine}, {request.timestamp / 60_000:.1f} min into the trace"
        )

    return advance


def _progress(*, quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
