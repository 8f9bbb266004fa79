"""On a host without pyverbs, RDMA is refused in a sentence that helps, and nothing else needs it."""

import subprocess
import sys

REFUSED = """
import sys
sys.modules["pyverbs"] = None
from nexuskv.errors import StartupError
from nexuskv_transport import open_transport
try:
    open_transport("rdma:")
except StartupError as error:
    print(error)
"""
OTHERS = """
import sys
from nexuskv_transport import open_transport
for scheme in ("tcp:", "loopback:"):
    open_transport(scheme).close()
print([name for name in sys.modules if "pyverbs" in name or "rdma" in name])
"""


def run(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout.strip()


def test_its_absence_names_the_package() -> None:
    (sentence,) = run(REFUSED).splitlines()
    assert "install Debian's or Ubuntu's python3-pyverbs" in sentence


def test_other_transports_do_not_import_it() -> None:
    assert run(OTHERS) == "[]"
