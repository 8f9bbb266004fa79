"""Suite rdma on a host without an RDMA device."""

import subprocess
import sys
from pathlib import Path

import pytest

DEVICES = Path("/sys/class/infiniband")


@pytest.mark.skipif(DEVICES.exists() and any(DEVICES.iterdir()), reason="this host has an RDMA device")
def test_it_says_what_it_needs() -> None:
    command = [sys.executable, "-m", "nexuskv.cli.main", "bench", "rdma"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    (sentence,) = ended.stderr.strip().splitlines()
    assert "needs an RDMA device" in sentence
    assert "make rdma" in sentence
