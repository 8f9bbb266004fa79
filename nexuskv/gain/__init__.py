"""Gain: whether fetching state is worth it, and over which path. G = T_compute - T_cache > 0.

Gathers the public names. Costs of fetching are measured, those of computing declared or learned. Engines reach it as
`cache.gain` and `cache.explain`, transports by registering their paths with `client.paths`.
"""

from nexuskv.gain.compute import Declared, Learned
from nexuskv.gain.gain import Gain
from nexuskv.gain.matrix import MATRIX, Growth, Row
from nexuskv.gain.paths import PINNED_MEMORY, SHARED_MEMORY, MeasuredPath, Path, Paths, RemotePath
from nexuskv.gain.route import Decision, Explanation, Offer, Option, explain

__all__ = [
    "MATRIX",
    "PINNED_MEMORY",
    "SHARED_MEMORY",
    "Decision",
    "Declared",
    "Explanation",
    "Gain",
    "Growth",
    "Learned",
    "MeasuredPath",
    "Offer",
    "Option",
    "Path",
    "Paths",
    "RemotePath",
    "Row",
    "explain",
]
