"""The suite `contract`: what an engine pays for state of several kinds.

Owns what is promised: names, bounds, and what each figure means. How each is measured is in the module of its group.
"""

from nexuskv.bench import fork
from nexuskv.bench.figures import Readings
from nexuskv.bench.suite import Effort, Suite, Tell

DEFINITIONS = fork.DEFINITIONS


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Measures group after group."""
    for group in (fork,):
        group.measure(effort, readings, tell)


SUITE = Suite("contract", "branches of a context", DEFINITIONS, measure)
