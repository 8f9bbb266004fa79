"""What it costs to compute state again, as learned from the prefills that an engine reports.

Owns the fit. The formula is `protocol.cost`'s, with its linear and its quadratic term. Knows nothing of models or
devices.

The quadratic term is not small. For Llama-3-8B the two are equal at about 61,000 tokens (2 * 8e9 flops a token against
2 * 32 * 4096 * n^2 of causal attention), so a line through short prefills would make a 128K context look three times
too cheap. Recurrences and SSM scans have none.
"""

from math import isfinite
from typing import Final

from nexuskv.errors import LocalError
from nexuskv.gain.matrix import Growth
from nexuskv.protocol.cost import ComputeCost

RATE: Final = 0.05
"""Weight of the newest prefill: the fit remembers some twenty."""
_SPREAD: Final = 0.05
"""Prefills whose lengths differ by less than this share of their mean tell nothing of the quadratic term."""


class Learned:
    """A weighted least-squares line through seconds a token over the mean look-back, newer prefills counting more.

    In those terms n * (a + q * (2 s + n)) is a line, and the error of each prefill counts relative to its length.
    """

    def __init__(self, growth: Growth) -> None:
        self._quadratic = growth is Growth.QUADRATIC
        self._mean_x = self._mean_y = self._xx = self._xy = 0.0
        self._slope = 0.0
        self.prefills = 0

    def observe(self, tokens: int, seconds: float, start: int = 0) -> None:
        """Learns from a prefill of `tokens` tokens that followed `start` cached ones."""
        if not (tokens >= 1 and start >= 0 and seconds > 0 and isfinite(seconds)):
            raise LocalError(
                f"{tokens} tokens after {start} in {seconds} s is no prefill: report what was computed and how long"
            )
        self.prefills += 1
        rate = max(RATE, 1 / self.prefills)  # a plain mean, until there are enough to forget the first
        x, y = 2.0 * start + tokens, seconds / tokens
        before_x, before_y = x - self._mean_x, y - self._mean_y
        self._mean_x += rate * before_x
        self._mean_y += rate * before_y
        self._xx = (1 - rate) * (self._xx + rate * before_x * before_x)
        self._xy = (1 - rate) * (self._xy + rate * before_x * before_y)
        if self._quadratic and self._xx > (_SPREAD * self._mean_x) ** 2:
            self._slope = max(self._xy / self._xx, 0.0)

    @property
    def cost(self) -> ComputeCost:
        """The fit. Neither term is negative: where the line would start below zero, all is attention."""
        start = self._mean_y - self._slope * self._mean_x
        if start >= 0:
            return ComputeCost(start, self._slope)
        return ComputeCost(0.0, self._mean_y / self._mean_x)
