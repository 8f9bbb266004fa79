"""From readings to figures: which run is shown, which placement is judged, and when a bound holds."""

import pytest

from nexuskv.bench.figures import Definition, Figure, Readings, figures
from nexuskv.bench.measure import Placement

SLOW = Definition("wait", "us", "<=", 3.0, "")
FAST = Definition("put", "GB/s", ">=", 0.5, "")
PLAIN = Definition("bytes", "B", "<=", 400, "")
FREELY = Definition("other", "us", "<=", None, "")


def by_name(readings: Readings, *definitions: Definition) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(readings.outcomes(definitions))}


def test_the_run_in_the_middle_is_shown_whole() -> None:
    readings = Readings()
    for value, floor in ((10.0, 10.0), (50.0, 10.0), (40.0, 20.0)):
        readings.add("wait", Placement.PINNED, value, floor)
    shown = by_name(readings, SLOW)["wait_pinned"]
    assert (shown.value, shown.floor, shown.ratio, shown.holds) == (40.0, 20.0, 2.0, True)


@pytest.mark.parametrize(("definition", "worse"), [(SLOW, "apart"), (FAST, "pinned")])
def test_the_plain_name_stands_for_the_worse_placement(definition: Definition, worse: str) -> None:
    readings = Readings()
    readings.add(definition.name, Placement.PINNED, 1.0, 4.0)
    readings.add(definition.name, Placement.APART, 4.0, 1.0)
    shown = by_name(readings, definition)
    assert shown[definition.name].ratio == shown[f"{definition.name}_{worse}"].ratio
    assert shown[definition.name].holds is False
    assert [figure.holds for figure in shown.values()].count(True) == 1


def test_running_free_is_shown_and_not_judged() -> None:
    readings = Readings()
    readings.add("wait", Placement.PINNED, 2.0, 1.0)
    readings.add("wait", Placement.FREE, 9.0, 1.0)
    shown = by_name(readings, SLOW)
    assert (shown["wait"].holds, shown["wait_free"].holds) == (True, False)


@pytest.mark.parametrize(("value", "holds"), [(400.0, True), (400.5, False)])
def test_without_a_floor_the_bound_is_on_the_value(value: float, *, holds: bool) -> None:
    readings = Readings()
    readings.add("bytes", None, value)
    assert by_name(readings, PLAIN) == {"bytes": Figure("bytes", value, "B", None, None, 400, holds)}


def test_what_promises_nothing_neither_holds_nor_fails() -> None:
    readings = Readings()
    readings.add("other", Placement.PINNED, 2.0, 1.0)
    assert by_name(readings, FREELY)["other"].holds is None


def test_what_was_not_measured_is_not_shown() -> None:
    readings = Readings()
    readings.add("bytes", None, 0.0)
    assert set(by_name(readings, SLOW, PLAIN)) == {"bytes"}
