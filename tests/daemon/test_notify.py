"""Talking to the service manager: a datagram socket hears us, a child process inherits listening sockets."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexuskv.errors import StartupError
from nexuskv_daemon import notify
from tests.support.activation import activated, listening, notify_socket

# Says what it was given and what a child of its own would inherit, and answers one client on each socket.
SERVE = """
import os, sys
from nexuskv_daemon import notify
from nexuskv.errors import StartupError
try:
    inherited = notify.listen_fds()
except StartupError as error:
    sys.exit(f"StartupError: {error}")
print([name for name, _ in inherited], notify.listen_fds())
print(sorted(name for name in os.environ if name.startswith("LISTEN_")))
print([os.get_inheritable(sock.fileno()) for _, sock in inherited])
for _, sock in inherited:
    session, _ = sock.accept()
    session.send(session.recv(16).upper())
    session.close()
    sock.close()
"""


def serve(*fds: int, names: str = "", pid_offset: int = 0) -> subprocess.CompletedProcess[str]:
    """Start the child with `fds` as its descriptors 3 and up, as systemd would, and wait for its end."""
    command = activated([sys.executable, "-c", SERVE], *fds, pid_offset=pid_offset)
    environ = {**os.environ, "LISTEN_FDNAMES": names}
    return subprocess.run(command, env=environ, pass_fds=fds, capture_output=True, text=True, check=False)


def connected(to: socket.socket) -> socket.socket:
    """A client that has already asked its question."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(to.getsockname())
    client.send(b"hello")
    return client


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address for NOTIFY_SOCKET, of either kind."""
    return f"{'@' if request.param == 'abstract' else ''}{tmp_path}/notify"


@pytest.fixture
def manager(address: str) -> Iterator[socket.socket]:
    """A service manager that listens there."""
    with notify_socket(address) as sock:
        yield sock


def test_ready_status_and_stopping_arrive(manager: socket.socket, address: str) -> None:
    environ = {"NOTIFY_SOCKET": address}

    assert notify.ready("serving on /run/nexuskv/nexuskvd.sock", environ)
    assert notify.status("12 pages", environ)
    assert notify.stopping("removing 3 segments", environ)

    assert manager.recv(256) == b"READY=1\nSTATUS=serving on /run/nexuskv/nexuskvd.sock"
    assert manager.recv(256) == b"STATUS=12 pages"
    assert manager.recv(256) == b"STOPPING=1\nSTATUS=removing 3 segments"


def test_a_status_cannot_set_another_variable(manager: socket.socket, address: str) -> None:
    notify.status("model\nMAINPID=1", {"NOTIFY_SOCKET": address})

    assert manager.recv(256) == b"STATUS=model MAINPID=1"


def test_without_a_service_manager_nothing_happens() -> None:
    assert not notify.ready("serving", {})


@pytest.mark.parametrize("unreachable", ["/nowhere/notify", "vsock:2:1234"])
def test_a_manager_that_cannot_be_reached_is_logged_and_survived(
    unreachable: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not notify.ready("serving", {"NOTIFY_SOCKET": unreachable})
    assert unreachable in caplog.text  # the operator can see why systemd waits in vain


def test_an_inherited_socket_serves_and_goes_no_further(tmp_path: Path) -> None:
    with listening(tmp_path / "nexuskvd.sock") as sock, connected(sock) as client:
        child = serve(sock.fileno(), names="nexuskvd")

        assert child.stdout.splitlines() == ["['nexuskvd'] []", "[]", "[False]"], child.stderr
        assert client.recv(16) == b"HELLO"


def test_names_are_optional(tmp_path: Path) -> None:
    with (
        listening(tmp_path / "one") as one,
        listening(tmp_path / "two") as two,
        connected(one) as first,
        connected(two) as second,
    ):
        child = serve(one.fileno(), two.fileno())

        assert child.stdout.splitlines()[0] == "['unknown', 'unknown'] []", child.stderr
        assert (first.recv(16), second.recv(16)) == (b"HELLO", b"HELLO")


def test_sockets_meant_for_another_process_are_left_alone(tmp_path: Path) -> None:
    with listening(tmp_path / "nexuskvd.sock") as sock:
        child = serve(sock.fileno(), pid_offset=1)

    assert child.stdout.splitlines() == ["[] []", "[]", "[]"], child.stderr


def test_a_stream_socket_is_refused(tmp_path: Path) -> None:
    with listening(tmp_path / "wrong.sock", socket.SOCK_STREAM) as sock:
        child = serve(sock.fileno(), names="wrong")

    assert child.returncode == 1
    assert "inherited descriptor 3 (wrong) is a socket of AF_UNIX, SOCK_STREAM, listening;" in child.stderr
    assert "ListenSequentialPacket=" in child.stderr


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_a_socket_that_does_not_listen_is_refused(tmp_path: Path, kind: int) -> None:
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.bind(str(tmp_path / "wrong.sock"))

        assert f"AF_UNIX, {socket.SocketKind(kind).name}, not listening;" in serve(sock.fileno()).stderr


def test_a_tcp_socket_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        assert "AF_INET, SOCK_STREAM, listening;" in serve(tcp.fileno()).stderr


def test_a_descriptor_that_is_no_socket_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert "inherited descriptor 3 (unknown) is no socket" in serve(file.fileno()).stderr


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
