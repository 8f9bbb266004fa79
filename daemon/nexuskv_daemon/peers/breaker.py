"""A circuit breaker: who failed several times in a row is not asked for a while.

Owns the count and the rest. Pure: the clock (seconds, monotonic) and the dice are handed in. When the rest is over one
trial is let through; its outcome decides. Libraries for this go by the wall clock, and wrap the call; here the question
"may I ask it" comes first, of many peers at once.
"""

from collections.abc import Callable

FAILURES = 3
REST_SECONDS = 5.0
LONGEST_REST_SECONDS = 60.0


class Breaker:
    """`draw` gives a number from 0 to 1, which spreads rests: not all hosts come back to a peer at once.

    `patience` is how many failures in a row it takes.
    """

    def __init__(self, draw: Callable[[], float], patience: int = FAILURES) -> None:
        self._draw = draw
        self._patience = patience
        self._failures = 0
        self._rest_until = 0.0

    def closed(self, now: float) -> bool:
        """Whether to go on asking. After a rest the answer is yes once, until an outcome is told or it rested again."""
        if self._failures < self._patience:
            return True
        if now < self._rest_until:
            return False
        self._rest(now)  # one trial: whoever asks after this one waits for its outcome
        return True

    def resting(self, now: float) -> bool:
        """Whether it is not asked just now, without taking the trial."""
        return self._failures >= self._patience and now < self._rest_until

    def succeeded(self) -> None:
        """It did what it should."""
        self._failures = 0

    def failed(self, now: float) -> None:
        """It did not."""
        self._failures += 1
        if self._failures >= self._patience:
            self._rest(now)

    def _rest(self, now: float) -> None:
        longest = min(REST_SECONDS * 2 ** (self._failures - self._patience), LONGEST_REST_SECONDS)
        self._rest_until = now + longest * (1 + self._draw()) / 2
