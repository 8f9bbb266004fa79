"""Starting nexuskvd where it must not start: a sentence, exit code 1, and nothing changed."""

import os
import socket
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import nexuskv
from tests.support import users
from tests.support.daemon import Daemon, running

SHM = Path("/dev/shm")


def refused(*options: str, before_it: list[str] | None = None) -> str:
    """What a nexuskvd says that does not start; it leaves no object."""
    name = options[options.index("--instance") + 1]
    before = objects(name)
    command = [*(before_it or []), sys.executable, "-m", "nexuskv_daemon", "--memory", "1MiB", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert objects(name) == before
    return done.stderr


def objects(instance: str) -> set[str]:
    """Names in shared memory that such a daemon could have made."""
    return {path.name for path in SHM.iterdir() if path.name.startswith(f"nexuskv-{instance}-")}


@pytest.fixture
def name() -> str:
    """An instance that nobody else has."""
    return f"test-{os.getpid()}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A socket path."""
    return tmp_path / "d.sock"


@pytest.fixture
def live() -> Iterator[Daemon]:
    """A daemon that serves, and still does afterwards."""
    with running(memory="1MiB") as daemon:
        yield daemon
        daemon.client().close()


def test_a_path_on_which_a_live_daemon_listens(live: Daemon, name: str) -> None:
    said = refused("--instance", name, "--socket", live.address)

    assert f"a live daemon listens on {live.socket}" in said


def test_the_instance_of_a_live_daemon(live: Daemon, path: Path) -> None:
    said = refused("--instance", live.instance, "--socket", f"unix:{path}")

    assert f"instance '{live.instance}' runs already" in said
    assert not path.exists()


def test_the_socket_of_a_dead_daemon_is_replaced(path: Path) -> None:
    daemon = Daemon(memory="1MiB", socket=path)
    try:
        daemon.wait_ready()
        daemon.stop(9)
        assert stat.S_ISSOCK(path.stat().st_mode)
        with pytest.raises(nexuskv.Disconnected, match="start nexuskvd"):
            daemon.client()

        daemon.restart()
        daemon.client().close()
        assert daemon.stop() == 0
        assert not path.exists()
    finally:
        daemon.clean_up()


def test_a_file_that_is_no_socket_is_left_alone(name: str, path: Path) -> None:
    path.write_text("precious")

    assert f"{path} exists and is no socket" in refused("--instance", name, "--socket", f"unix:{path}")
    assert path.read_text() == "precious"


def test_a_link_is_not_followed(name: str, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    path.symlink_to(target)

    assert "is no socket" in refused("--instance", name, "--socket", f"unix:{path}")
    assert target.read_text() == "precious"


def test_a_socket_of_another_kind_is_left_alone(name: str, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()

        assert str(path) in refused("--instance", name, "--socket", f"unix:{path}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(path))


def test_a_path_below_a_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert "choose another --socket" in refused(
        "--instance", name, "--socket", f"unix:{tmp_path}/file/d.sock"
    )


@pytest.mark.parametrize("instance", ["", "../x", "ü", "x" * 65])
def test_a_name_that_is_none(path: Path, instance: str) -> None:
    said = refused("--instance", instance, "--socket", f"unix:{path}")

    assert "use 1 to 64 of [A-Za-z0-9._-]" in said
    assert not path.exists()


def test_a_budget_that_shared_memory_cannot_hold(name: str, path: Path) -> None:
    said = refused("--instance", name, "--socket", f"unix:{path}", "--memory", "100TiB")

    assert "--memory asks for 100 TiB" in said
    assert "free: take --memory" in said
    assert not path.exists()


@users.as_nobody
def test_an_instance_of_another_user(live: Daemon, name: str) -> None:
    (SHM / f"nexuskv-{name}-data-1").write_bytes(bytes(4096))
    try:
        for instance in (live.instance, name):
            said = refused(
                "--instance", instance, "--socket", f"unix:/tmp/{instance}.sock", before_it=users.COMMAND
            )
            assert "another user" in said
        assert (SHM / f"nexuskv-{name}-data-1").exists()
    finally:
        (SHM / f"nexuskv-{name}-data-1").unlink()


@users.as_nobody
def test_a_folder_that_may_not_be_entered(name: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    said = refused("--instance", name, "--socket", f"unix:{tmp_path}/d.sock", before_it=users.COMMAND)

    assert "choose another --socket" in said


def test_what_stands_where_the_lock_belongs(name: str, path: Path) -> None:
    lock = SHM / f"nexuskv-{name}-lock"
    lock.symlink_to("/nowhere")
    try:
        assert str(lock) in refused("--instance", name, "--socket", f"unix:{path}")
    finally:
        lock.unlink()


def test_the_socket_has_the_mode_that_was_asked_for() -> None:
    for options, mode in ((["--socket-mode", "0666"], 0o666), ([], 0o600)):
        with running(*options, memory="1MiB") as daemon:
            assert stat.S_IMODE(daemon.socket.stat().st_mode) == mode


@pytest.mark.parametrize("text", ["9", "rw", "01777", "-1"])
def test_a_mode_that_is_none(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nexuskv_daemon", f"--socket-mode={text}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "no octal file mode such as 0660" in done.stderr


@pytest.mark.parametrize("option", ["--memory", "--segment-bytes"])
@pytest.mark.parametrize("size", ["0", "1", "4095"])
def test_sizes_that_nothing_fits_into_are_wrong_usage(name: str, option: str, size: str) -> None:
    command = [sys.executable, "-m", "nexuskv_daemon", "--instance", name, option, size]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"{option}: {size!r}: nothing fits" in done.stderr
    assert objects(name) == set()
