"""Programs and children of another user than the one who runs the tests, who must be root for that."""

import os
import shutil

import pytest

NOBODY = 65534

as_nobody = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv to become another user",
)

COMMAND = [
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    # An interpreter below /root is readable for nobody else; this reads anything, and writes nothing.
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip
"""What to put before a command."""


def become_nobody() -> None:
    """Turns this process into one of NOBODY without any privilege; what is not imported yet may be out of reach."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
