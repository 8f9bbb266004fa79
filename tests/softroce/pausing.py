"""The other guest of a pair stopped for a while, at the wish of a test on the first one."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.softroce.guests import PAUSE


@contextlib.contextmanager
def paused(seconds: float) -> Iterator[None]:
    """Has the machine stop the other guest; waits at the end until it goes on."""
    (Path("/job") / "pause.new").write_text(str(seconds))
    request = (Path("/job") / "pause.new").rename(Path("/job") / PAUSE)
    while request.exists():
        time.sleep(0.01)
    resumed = threading.Timer(seconds, lambda: None)
    resumed.start()
    yield
    resumed.join()
