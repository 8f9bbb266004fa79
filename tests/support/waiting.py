"""Waiting for what another process will do, by looking again and again until a deadline."""

import time
from collections.abc import Callable

SECONDS = 30.0
STEP = 0.005


def until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Returns once `condition` holds; fails with `what` when it still does not after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(STEP)
