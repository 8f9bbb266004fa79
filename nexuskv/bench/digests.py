"""How long an engine's first descriptor takes: built, checked, laid out and digested, with nothing remembered.

Owns that one figure. The model has DeepSeek-V3's 61 layers, and each sample is the first one of a new interpreter.
"""

import subprocess
import sys
from statistics import median

from nexuskv.bench.figures import Readings
from nexuskv.bench.suite import Effort, Tell

FIRST = """
import time
from nexuskv.contract import mla
start = time.perf_counter()
d = mla("deepseek-v3", layers=61, dtype="bfloat16", engine_family="VLLM")
d.digest, d.page_layout
print(time.perf_counter() - start)
"""


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds descriptor_digest, in every run the median of several."""
    for run in range(1, effort.runs + 1):
        tell(f"descriptors, run {run} of {effort.runs}")
        seconds = median(_first() for _ in range(effort.pick(9, 1)))
        readings.add("descriptor_digest", None, seconds * 1e3)


def _first() -> float:
    told = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    return float(told.stdout)
