"""Talking to the service manager: a datagram socket hears us, a child process inherits listening sockets."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from nexuskv.errors import StartupError
from nexuskv_daemon import notify

# What a service manager does between fork and exec: sockets become descriptors 3 and up, LISTEN_PID the pid.
ACTIVATE = """
import os, sys
fds = [int(fd) for fd in sys.argv[1].split(",")]
spare = [os.dup(os.dup(fd)) for fd in fds]
for target, fd in enumerate(spare, start=3):
    os.dup2(fd, target, inheritable=True)
os.environ["LISTEN_PID"] = str(os.getpid() + int(sys.argv[3]))
os.environ["LISTEN_FDS"] = str(len(fds))
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2]])
"""

# Answers one client, and says what a child of its own would inherit.
SERVE = """
import os, subprocess, sys
from nexuskv_daemon import notify
from nexuskv.errors import StartupError
try:
    inherited = notify.listen_fds()
except StartupError as error:
    print("StartupError:", error)
    sys.exit(1)
print([name for name, _ in inherited], notify.listen_fds())
print(sorted(name for name in os.environ if name.startswith("LISTEN_")))
print([os.get_inheritable(sock.fileno()) for _, sock in inherited])
for _, sock in inherited:
    session, _ = sock.accept()
    session.send(session.recv(16).upper())
    session.close()
    sock.close()
"""


def activate(
    *inherited: socket.socket | BinaryIO, names: str = "", pid_offset: int = 0
) -> subprocess.CompletedProcess[str]:
    """Start the child with these as its descriptors 3 and up, as systemd would, and wait for its end."""
    fds = [each.fileno() for each in inherited]
    command = [sys.executable, "-c", ACTIVATE, ",".join(map(str, fds)), SERVE, str(pid_offset)]
    environ = {**os.environ, "LISTEN_FDNAMES": names}
    return subprocess.run(command, env=environ, pass_fds=fds, capture_output=True, text=True, check=False)


Listen = Callable[..., socket.socket]


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Listen]:
    """Opens sockets in a private folder; they are closed afterwards."""
    opened: list[socket.socket] = []

    def open_one(name: str, kind: int = socket.SOCK_SEQPACKET, *, listening: bool = True) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, kind)
        opened.append(sock)
        sock.bind(str(tmp_path / name))
        if listening:
            sock.listen()
        return sock

    yield open_one
    for sock in opened:
        sock.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """A service manager's datagram socket, and the environment that names it."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path if request.param == "path" else f"\0{path}")
        sock.settimeout(10)
        yield sock, {"NOTIFY_SOCKET": path if request.param == "path" else f"@{path}"}


def test_ready_status_and_stopping_arrive(manager: tuple[socket.socket, dict[str, str]]) -> None:
    sock, environ = manager

    assert notify.ready("serving on /run/nexuskv/nexuskvd.sock", environ)
    assert notify.status("12 pages", environ)
    assert notify.stopping("removing 3 segments", environ)

    assert sock.recv(256) == b"READY=1\nSTATUS=serving on /run/nexuskv/nexuskvd.sock"
    assert sock.recv(256) == b"STATUS=12 pages"
    assert sock.recv(256) == b"STOPPING=1\nSTATUS=removing 3 segments"


def test_a_status_cannot_set_another_variable(manager: tuple[socket.socket, dict[str, str]]) -> None:
    sock, environ = manager

    notify.status("model\nMAINPID=1", environ)

    assert sock.recv(256) == b"STATUS=model MAINPID=1"


def test_without_a_service_manager_nothing_happens() -> None:
    assert not notify.ready("serving", {})


@pytest.mark.parametrize("address", ["/nowhere/notify", "vsock:2:1234"])
def test_a_manager_that_cannot_be_reached_is_logged_and_survived(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not notify.ready("serving", {"NOTIFY_SOCKET": address})
    assert address in caplog.text  # the operator can see why systemd waits in vain


def test_an_inherited_socket_serves_and_goes_no_further(listen: Listen) -> None:
    listening = listen("nexuskvd.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(listening.getsockname())
        client.send(b"hello")

        child = activate(listening, names="nexuskvd")

        assert child.stdout.splitlines() == ["['nexuskvd'] []", "[]", "[False]"], child.stderr
        assert client.recv(16) == b"HELLO"


def test_names_are_optional_and_in_order(listen: Listen) -> None:
    one, two = listen("one"), listen("two")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as second,
    ):
        for client, address in ((first, one.getsockname()), (second, two.getsockname())):
            client.connect(address)
            client.send(b"hello")

        child = activate(one, two)

        assert child.stdout.splitlines()[0] == "['unknown', 'unknown'] []", child.stderr


def test_sockets_meant_for_another_process_are_left_alone(listen: Listen) -> None:
    child = activate(listen("nexuskvd.sock"), pid_offset=1)

    assert child.stdout.splitlines() == ["[] []", "[]", "[]"], child.stderr


@pytest.mark.parametrize(
    ("kind", "listening", "said"),
    [
        (socket.SOCK_STREAM, True, "AF_UNIX, SOCK_STREAM, listening"),
        (socket.SOCK_SEQPACKET, False, "AF_UNIX, SOCK_SEQPACKET, not listening"),
        (socket.SOCK_DGRAM, False, "AF_UNIX, SOCK_DGRAM, not listening"),
    ],
)
def test_a_socket_of_the_wrong_kind_is_refused(
    listen: Listen, kind: int, *, listening: bool, said: str
) -> None:
    child = activate(listen("wrong.sock", kind, listening=listening), names="wrong")

    assert child.returncode == 1
    assert f"inherited descriptor 3 (wrong) is a socket of {said};" in child.stdout
    assert "ListenSequentialPacket=" in child.stdout


def test_a_tcp_socket_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        assert "AF_INET, SOCK_STREAM, listening" in activate(tcp).stdout


def test_a_descriptor_that_is_no_socket_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert "inherited descriptor 3 (unknown) is no socket" in activate(file).stdout


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"LISTEN_PID": "me", "LISTEN_FDS": "1"}, "LISTEN_PID='me' is not a number"),
        ({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "-1"}, "LISTEN_FDS='-1' is not a number"),
        (
            {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b:c"},
            "names 3 descriptors, LISTEN_FDS says 2",
        ),
    ],
)
def test_malformed_variables_are_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        notify.listen_fds(environ)
    assert environ == {}
