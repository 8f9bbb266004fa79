"""The units as systemd sees them: they verify, and the snippets make the user and the folder they need."""

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = ("nexuskvd.service", "nexuskvd.socket")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


def tool(name: str) -> str:
    """Path of a program of systemd; skips the test on a machine without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(*command: str | Path) -> str:
    """Run to success; returns stdout and stderr together."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def read(unit: str) -> configparser.ConfigParser:
    """The settings of a unit, by section and name."""
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.read(SYSTEMD / unit)
    return parser


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units in a folder of their own, with an executable that exists on this machine."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/nexuskvd", shutil.which("true") or "/bin/true"))
    return [tmp_path / name for name in UNITS]


def test_the_units_verify_without_a_word(units: list[Path]) -> None:
    assert run(tool("systemd-analyze"), "verify", "--man=no", *units) == ""


def test_a_unit_with_a_fault_would_be_noticed(units: list[Path]) -> None:
    units[0].write_text(units[0].read_text().replace("Type=notify", "Type=notifies"))

    assert "notifies" in run(tool("systemd-analyze"), "verify", "--man=no", *units)


def test_the_service_gets_the_socket_that_the_socket_unit_opens() -> None:
    service, sock = read("nexuskvd.service"), read("nexuskvd.socket")
    address = sock["Socket"]["ListenSequentialPacket"]

    assert f"unix:{address} " in service["Service"]["ExecStart"]
    assert Path(address).parent == Path("/run") / service["Service"]["RuntimeDirectory"]


def test_stopping_the_service_leaves_the_socket_and_the_objects() -> None:
    service = read("nexuskvd.service")["Service"]

    assert service["RuntimeDirectoryPreserve"] == "yes"
    assert service["RemoveIPC"] == "no"
    assert "DynamicUser" not in service


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty system image in which sysusers.d has been applied."""
    (tmp_path / "etc").mkdir()
    run(tool("systemd-sysusers"), f"--root={tmp_path}", SYSTEMD / "sysusers.d/nexuskv.conf")
    return tmp_path


@needs_root
def test_sysusers_makes_a_system_user(root: Path) -> None:
    name, _, uid, *_ = (root / "etc/passwd").read_text().split(":")
    assert name == read("nexuskvd.service")["Service"]["User"]
    assert int(uid) < 1000  # logind deletes the shared memory of other users when they log out


@needs_root
def test_tmpfiles_makes_the_folder_of_the_socket(root: Path) -> None:
    run(tool("systemd-tmpfiles"), "--create", f"--root={root}", SYSTEMD / "tmpfiles.d/nexuskv.conf")

    mode = f"{(root / 'run/nexuskv').stat().st_mode & 0o7777:04o}"
    assert mode == read("nexuskvd.service")["Service"]["RuntimeDirectoryMode"]
    assert mode == read("nexuskvd.socket")["Socket"]["DirectoryMode"]
