"""`nexuskv certs` as a shell sees it: the files it makes serve two processes that pull over TLS."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nexuskv_transport import Tls, checks
from nexuskv_transport.checks.far import OURS

WITHOUT_CRYPTOGRAPHY = """
import sys
sys.modules["cryptography"] = None
from nexuskv.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def certs(*arguments: str | Path, code: str = "") -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "nexuskv.cli.main"]
    command = [sys.executable, *start, "certs", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def made(directory: Path, host: str) -> Tls:
    ended = certs(directory, "--host", host, "--host", "127.0.0.1", "--tenant", OURS, "--json")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["tenants"], said["days"]) == ([OURS], 30)
    return Tls(said["certificate"], said["key"], said["authority"])


def test_two_hosts_of_one_authority(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    here, there = made(directory, "here.example"), made(directory, "there.example")
    assert here.authority == there.authority
    with checks.processes("tcp://127.0.0.1:0", here, there) as pair:
        checks.CHECKS[0](pair)


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    made(tmp_path, "a")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "a.key": 0o600, "a.pem": 0o644}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = made(tmp_path, "a")
    before = Path(first.certificate).read_bytes()
    ended = certs(tmp_path, "--host", "a")
    assert ended.returncode == 1
    assert "is there already: remove it first" in ended.stderr
    assert Path(first.certificate).read_bytes() == before


def test_a_damaged_authority(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    ended = certs(tmp_path, "--host", "a")
    assert ended.returncode == 1
    assert "are no authority made by this command" in ended.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("--host", "../x"), ("--host", "a", "--days", "0"), ("--host", "a", "--tenant", "x/y")]
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert certs(tmp_path, *arguments).returncode == 2


def test_without_its_package(tmp_path: Path) -> None:
    ended = certs(tmp_path, "--host", "a", code=WITHOUT_CRYPTOGRAPHY)
    assert ended.returncode == 1
    assert "pip install 'nexuskv[certs]'" in ended.stderr
    assert "Traceback" not in ended.stderr
