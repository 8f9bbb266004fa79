"""Gain: whether fetching state is worth it, and over which path. G = T_compute - T_cache > 0.

Gathers the public names. Costs of fetching are measured, those of computing declared or learned. Engines reach it as
`cache.gain` and `cache.explain`.
"""

from nexuskv.gain.compute import Learned
from nexuskv.gain.gain import Gain
from nexuskv.gain.matrix import MATRIX, Growth, Row
from nexuskv.gain.paths import PINNED_MEMORY, SHARED_MEMORY, MeasuredPath, Path, Paths
from nexuskv.gain.route import Decision, Explanation, Offer, Option, explain
from nexuskv.protocol.cost import ComputeCost

__all__ = [
    "MATRIX",
    "PINNED_MEMORY",
    "SHARED_MEMORY",
    "ComputeCost",
    "Decision",
    "Explanation",
    "Gain",
    "Growth",
    "Learned",
    "MeasuredPath",
    "Offer",
    "Option",
    "Path",
    "Paths",
    "Row",
    "explain",
]
