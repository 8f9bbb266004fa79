"""What it costs to compute state again: declared by the engine, or learned from the prefills it reports.

Owns the model of a prefill and its fit. Knows nothing of models or devices.

    seconds(n) = a * n + q * n^2        of n tokens from the first on
    after s tokens that were cached, n more take  n * (a + q * (2 s + n))

The quadratic term is attention: each token looks at all before it. It is not small. For Llama-3-8B the two terms are
equal at about 61,000 tokens (2 * 8e9 flops a token against 2 * 32 * 4096 * n^2 of causal attention), so a line through
short prefills would make a 128K context look three times too cheap. Recurrences and SSM scans have none.
"""

from math import isfinite
from typing import Final

import msgspec

from nexuskv.errors import LocalError
from nexuskv.gain.matrix import Growth

RATE: Final = 0.05
"""Weight of the newest prefill: the fit remembers some twenty."""
_SPREAD: Final = 0.05
"""Prefills whose lengths differ by less than this share of their mean tell nothing of the quadratic term."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine says: seconds a token, and seconds a token squared for attention."""

    seconds_per_token: float
    seconds_per_token_squared: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (value >= 0 and isfinite(value)):
                raise LocalError(f"{name} is {value}: give a number of seconds, 0 or more")

    def seconds(self, tokens: int) -> float:
        """Time to compute `tokens` tokens from the first on."""
        return tokens * (self.seconds_per_token + self.seconds_per_token_squared * tokens)


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
        if tokens < 1 or start < 0 or not (seconds > 0 and isfinite(seconds)):
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
    def cost(self) -> Declared:
        """The fit. Neither term is negative: where the line would start below zero, all is attention."""
        start = self._mean_y - self._slope * self._mean_x
        if start >= 0:
            return Declared(seconds_per_token=start, seconds_per_token_squared=self._slope)
        return Declared(seconds_per_token=0.0, seconds_per_token_squared=self._mean_y / self._mean_x)
