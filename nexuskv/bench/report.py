"""Figures for people: a table on a terminal, or the same one in Markdown, and what is to be said below it.

Owns the wording. Knows nothing of how anything was measured.
"""

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from nexuskv.bench.figures import Definition, Figure, Outcome
from nexuskv.bench.measure import Placement
from nexuskv.bench.suite import Effort, Suite

WIDE = 200
"""Characters: more than any row needs, so that none is wrapped where no terminal sets a limit."""


def print_report(title: str, outcomes: list[Outcome], notes: Iterable[str], *, markdown: bool) -> None:
    """Prints the table and the sentences."""
    console = Console()
    if markdown or not console.is_terminal:
        console = Console(width=WIDE)
    console.print(title, "", sep="\n", highlight=False, soft_wrap=True)
    console.print(_table(outcomes, markdown=markdown))
    console.print("", highlight=False)
    for sentence in sentences(outcomes, notes):
        console.print(f"{'* ' if markdown else ''}{sentence}", highlight=False, soft_wrap=True, markup=False)


def sentences(outcomes: list[Outcome], notes: Iterable[str]) -> list[str]:
    """What the figures do not say by themselves: who is faster, what was noted, and which bounds hold."""
    return [*_rivals(outcomes), *notes, _verdict(outcomes)]


def _verdict(outcomes: Iterable[Outcome]) -> str:
    bounded = [each for each in outcomes if each.worst.holds is not None]
    missed = [each for each in bounded if not each.worst.holds]
    if not missed:
        return f"All {len(bounded)} bounds hold."
    names = "; ".join(f"{each.worst.name} is {_judged(each.worst)}, bound {_bound(each)}" for each in missed)
    return f"{len(missed)} of {len(bounded)} bounds DO NOT HOLD: {names}."


def title(suite: Suite, effort: Effort) -> str:
    """What was measured, and on what."""
    runs = f"The middle one of {effort.runs} runs" if effort.runs > 1 else "One run"
    return (
        f"Suite {suite.name}: {suite.text}. {runs} on {os.cpu_count()} CPUs ({_cpu()}),"
        f" Linux {platform.release()}, Python {platform.python_version()}."
        + (" Small and short: these figures mean nothing." if effort.quick else "")
    )


def print_definitions(definitions: Iterable[Definition]) -> None:
    """What each figure means."""
    table = Table("figure", "bound", "what it is", box=box.SIMPLE)
    for each in definitions:
        bound = "" if each.bound is None else f"{each.sense} {each.bound:g}"
        text = f"{each.rival}: {each.text}" if each.rival else each.text
        table.add_row(each.name, bound, text)
    Console().print(table)


def _table(outcomes: Sequence[Outcome], *, markdown: bool) -> Table:
    placements = [each for each in Placement if any(each in outcome.placed for outcome in outcomes)]
    table = Table(box=box.MARKDOWN if markdown else box.SIMPLE)
    table.add_column("figure")
    table.add_column("bound", justify="right")
    for placement in placements:
        table.add_column(f"{placement} / floor", justify="right")
        table.add_column("ratio", justify="right")
    if not placements:
        table.add_column("value", justify="right")
    table.add_column("holds")
    for each in outcomes:
        cells = [cell for placement in placements for cell in _cells(each, placement)]
        cells = cells or [_once(each.worst)]
        holds = {None: "", True: "yes", False: "NO"}[each.worst.holds]
        table.add_row(each.definition.rival or each.definition.name, _bound(each), *cells, holds)
    return table


def _cells(outcome: Outcome, placement: Placement) -> tuple[str, str]:
    figure = outcome.placed.get(placement)
    if figure is not None and figure.floor is None:
        return _amount(figure.value, figure.unit), ""
    if figure is not None:
        return f"{_number(figure.value)} / {_number(figure.floor)} {figure.unit}", _judged(figure)
    once = placement is Placement.PINNED  # what is the same wherever processes run stands in the first column
    return (_once(outcome.worst) if once else "", "")


def _once(figure: Figure) -> str:
    """Where nothing of the suite has placements, value, floor and ratio share a column."""
    if figure.floor is None:
        return _amount(figure.value, figure.unit)
    return f"{_number(figure.value)} / {_amount(figure.floor, figure.unit)} = {_judged(figure)}"


def _bound(outcome: Outcome) -> str:
    figure, sense = outcome.worst, outcome.definition.sense
    if figure.bound is None:
        return ""
    limit = _amount(figure.bound, figure.unit) if figure.floor is None else f"{figure.bound:g} x"
    return f"{sense} {limit}"


def _judged(figure: Figure) -> str:
    return _amount(figure.value, figure.unit) if figure.ratio is None else f"{figure.ratio:.2f} x"


def _amount(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}"


def _number(value: float | None) -> str:
    """Three digits or so: no figure here is known better."""
    if value is None:
        return "-"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rivals(outcomes: list[Outcome]) -> list[str]:
    """Who is faster, for each figure that has a rival's to compare with."""
    own = {each.definition.name: each for each in outcomes}
    return [
        _comparison(own[each.definition.name.rpartition("_")[0]], each)
        for each in outcomes
        if each.definition.rival
    ]


def _comparison(ours: Outcome, theirs: Outcome) -> str:
    parts = []
    for placement, figure in ours.placed.items():
        other = theirs.placed[placement]
        larger = figure.value > other.value
        ahead = "ahead of" if larger == (ours.definition.sense == ">=") else "behind"
        amounts = f"{_number(figure.value)} and {_amount(other.value, figure.unit)}"
        parts.append(f"{placement} {ahead} {theirs.definition.rival} ({amounts})")
    return f"{ours.definition.name}: {', '.join(parts)}."


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
