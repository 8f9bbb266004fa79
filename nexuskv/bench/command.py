"""The subcommand `nexuskv bench`: its options, its progress, and what goes to which stream.

Owns the terminal and the exit code. Knows nothing of what is measured.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from rich.console import Console

from nexuskv.bench import crash, report
from nexuskv.bench.figures import Definition, Outcome, Readings, figures
from nexuskv.bench.suite import Effort, Suite, Tell
from nexuskv.bench.suites import ON_REQUEST, SUITES
from nexuskv.harness.arguments import count
from nexuskv.harness.daemon import ending_on_sigterm

RUNS = 5
KILLS = 20
CRASH = "crash"


class Subparsers(Protocol):
    """What `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, /, **options: Any) -> argparse.ArgumentParser: ...


def add_parser(subparsers: Subparsers) -> None:
    """Registers `bench`."""
    parser = subparsers.add_parser(
        "bench",
        help="measure, each figure against a floor of the same run",
        description="Measures each figure against what nothing on this machine can be faster than, in turns, with the"
        " processes free and pinned to one CPU. Needs no daemon: it starts private ones.",
    )
    parser.add_argument(
        "suite",
        nargs="?",
        choices=(*SUITES, *ON_REQUEST, CRASH),
        metavar="SUITE",
        help=f"one of {', '.join(SUITES)} (default: these), or {', '.join(ON_REQUEST)}, which needs an RDMA"
        f" device, or {CRASH}, which kills the daemon under load",
    )
    parser.add_argument(
        "--runs", type=count, default=RUNS, metavar="N", help="show the middle one of N runs (%(default)s)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument(
        "--check", action="store_true", help="end with exit code 1 when a bound does not hold"
    )
    parser.add_argument("--list", action="store_true", help="say what each figure means, and measure nothing")
    parser.add_argument(
        "--quick", action="store_true", help="small and short, to see that it works: its figures mean nothing"
    )
    parser.add_argument(
        "--kills", type=count, default=KILLS, metavar="N", help=f"{CRASH}: how often (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S", help=f"{CRASH}: of all chance (%(default)s)"
    )
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Runs the suites. Raises NexusError when one cannot be run here."""
    suites = _chosen(args)
    if args.list:
        _list([definition for suite in suites for definition in suite.definitions], as_json=args.json)
        return 0
    outcomes = [outcome for suite in suites for outcome in _run(suite, args)]
    if args.json:
        _print_json(figures(outcomes))
    checked = args.check or args.suite == CRASH
    return int(checked and any(each.worst.holds is False for each in outcomes))


def _chosen(args: argparse.Namespace) -> list[Suite]:
    if args.suite == CRASH:
        return [crash.suite(args.kills, args.seed)]
    return [{**SUITES, **ON_REQUEST}[args.suite]] if args.suite else list(SUITES.values())


def _run(suite: Suite, args: argparse.Namespace) -> list[Outcome]:
    """With `--json`, what is to be said besides the figures goes to stderr."""
    runs = 1 if args.suite == CRASH else args.runs  # one with more kills tells more than several
    effort, readings = Effort(runs, args.quick), Readings()
    with ending_on_sigterm(), _progress() as tell:
        suite.measure(effort, readings, tell)
    outcomes = readings.outcomes(suite.definitions)
    if args.json:
        print(*report.sentences(outcomes, readings.notes), sep="\n", file=sys.stderr)
    else:
        report.print_report(report.title(suite, effort), outcomes, readings.notes, markdown=args.markdown)
    return outcomes


def _list(definitions: list[Definition], *, as_json: bool) -> None:
    if as_json:
        _print_json([definition._asdict() for definition in definitions])
    else:
        report.print_definitions(definitions)


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


@contextmanager
def _progress() -> Iterator[Tell]:
    """Says on a terminal what is being measured; says nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield status.update
