"""What computing state again costs an engine: the one form of it, in messages and out of them.

Owns two numbers and their formula. Who says them, or learns them from prefills, is `nexuskv.gain`.

    seconds(n) = n * (a + q * n)        of n tokens from the first on
    after s tokens that are there, n more take  n * (a + q * (2 s + n))

The quadratic term is attention: each token looks at all before it.
"""

import msgspec


class ComputeCost(msgspec.Struct, array_like=True, frozen=True):
    """Seconds a token, and seconds a token squared for attention; both 0 when nobody knows."""

    seconds_per_token: float = 0.0
    seconds_per_token_squared: float = 0.0

    def seconds(self, tokens: int, after: int = 0) -> float:
        """Time to compute `tokens` tokens that come after `after` others."""
        return tokens * (self.seconds_per_token + self.seconds_per_token_squared * (2 * after + tokens))
