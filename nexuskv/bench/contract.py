"""The suite `contract`: what an engine pays for state of several kinds.

Owns what is promised: names, bounds, and what each figure means. How each is measured is in the module of its group.
"""

from nexuskv.bench import group_match
from nexuskv.bench.figures import Readings
from nexuskv.bench.suite import Effort, Suite, Tell

DEFINITIONS = group_match.DEFINITIONS


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Measures group after group."""
    for group in (group_match,):
        group.measure(effort, readings, tell)


SUITE = Suite("contract", "groups of descriptors", DEFINITIONS, measure)
