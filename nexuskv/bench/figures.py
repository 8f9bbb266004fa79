"""From what was timed to what is claimed: readings, the figure they make, and whether its bound holds.

Owns the arithmetic and the shape of a figure. Knows nothing of how anything is measured or shown.

A figure is the run in the middle: of all runs the one with the median ratio, with the value and the floor of that same
run. A bound is one on the ratio; where there is no floor to compare with, it is one on the value.

`NAME_pinned`, `NAME_apart` and `NAME_free` are a figure's placements (see `measure.Placement`). Its plain name stands
for the worst one of those that it is judged in, so that a bound which holds, holds in all of them: `pinned` and `apart`
unless its definition says otherwise; `free` is shown and not judged.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from nexuskv.bench.measure import Placement


class Definition(NamedTuple):
    """What a figure means. `sense` says on which side of its bound it ought to be, so which of two is the better."""

    name: str
    unit: str
    sense: Literal["<=", ">="]
    bound: float | None
    text: str
    rival: str = ""
    """Whose figure this is, when not NexusKV's: it is measured to be compared with the figure of the same stem."""
    judged: tuple[Placement, ...] = (Placement.PINNED, Placement.APART)


class Figure(msgspec.Struct, frozen=True):
    """One row of the JSON output. `holds` is null where nothing is promised."""

    name: str
    value: float
    unit: str
    floor: float | None
    ratio: float | None
    bound: float | None
    holds: bool | None


class Reading(NamedTuple):
    """What one run found, both in the figure's unit."""

    value: float
    floor: float | None = None

    @property
    def judged(self) -> float:
        """What the bound is on."""
        return self.value / self.floor if self.floor else self.value


class Outcome(NamedTuple):
    """A definition and its figures; `placed` is empty where the placement makes no difference."""

    definition: Definition
    worst: Figure
    placed: dict[Placement, Figure]


class Readings:
    """Collects what the runs find; `notes` says what could not be measured, and why."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._found: dict[str, dict[Placement | None, list[Reading]]] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, placement: Placement | None, value: float, floor: float | None = None) -> None:
        """One run's reading; without a placement when none makes a difference."""
        self._found[name][placement].append(Reading(value, floor))

    def outcomes(self, definitions: Iterable[Definition]) -> list[Outcome]:
        """The figures of all definitions that there are readings of."""
        return [_outcome(each, self._found[each.name]) for each in definitions if each.name in self._found]


def figures(outcomes: Iterable[Outcome]) -> list[Figure]:
    """Every figure, that with the plain name before those of its placements."""
    return [figure for each in outcomes for figure in (each.worst, *each.placed.values())]


def _outcome(definition: Definition, found: dict[Placement | None, list[Reading]]) -> Outcome:
    middles = {placement: _middle(readings) for placement, readings in found.items()}
    placed = {
        placement: _figure(definition, f"{definition.name}_{placement}", reading)
        for placement, reading in middles.items()
        if placement is not None
    }
    choose = max if definition.sense == "<=" else min
    judged = [reading for placement, reading in middles.items() if placement in (*definition.judged, None)]
    worst = choose(judged or middles.values(), key=lambda reading: reading.judged)
    return Outcome(definition, _figure(definition, definition.name, worst), placed)


def _middle(readings: list[Reading]) -> Reading:
    return sorted(readings, key=lambda reading: reading.judged)[len(readings) // 2]


def _figure(definition: Definition, name: str, reading: Reading) -> Figure:
    bound, floor = definition.bound, reading.floor
    holds = None
    if bound is not None:
        holds = reading.judged <= bound if definition.sense == "<=" else reading.judged >= bound
    ratio = reading.judged if floor else None
    return Figure(name, reading.value, definition.unit, floor, ratio, bound, holds)
