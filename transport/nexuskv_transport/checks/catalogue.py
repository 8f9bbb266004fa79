"""The list of checks."""

from collections.abc import Callable

from nexuskv_transport.checks import arrival, endings, faults, limits
from nexuskv_transport.checks.pair import Pair

Check = Callable[[Pair], None]

CHECKS: tuple[Check, ...] = (*arrival.CHECKS, *limits.CHECKS, *faults.CHECKS, *endings.CHECKS)
