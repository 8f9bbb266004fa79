"""What a suite of benchmarks is, and how much work one run of it is.

Owns the form. The suites are listed in `suites.py`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.measure import Placement, placements


class Effort(NamedTuple):
    """`runs` of everything; `quick` ones are small and short: they show that it works, not how fast it is."""

    runs: int
    quick: bool

    def pick(self, full: int, quick: int) -> int:
        """A size or a count, by how thorough this run is."""
        return quick if self.quick else full

    def turns(self) -> Iterator[tuple[str, Placement]]:
        """Every placement in every run, with words for whoever waits."""
        for run in range(1, self.runs + 1):
            for placement in placements():
                yield f"run {run} of {self.runs}, {placement}", placement


Tell = Callable[[str], None]
"""Says to whoever waits what is being measured now."""


class Suite(NamedTuple):
    """`measure` adds readings of every definition."""

    name: str
    text: str
    definitions: tuple[Definition, ...]
    measure: Callable[[Effort, Readings, Tell], None]
