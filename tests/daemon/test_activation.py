"""nexuskvd as a service: started on a socket that systemd holds, it says when it serves and when it stops."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import nexuskv
from tests.support.activation import activated, listening, notify_socket


@contextlib.contextmanager
def service(sock: socket.socket, manager: socket.socket) -> Iterator["subprocess.Popen[str]"]:
    """A nexuskvd that inherited `sock` and was told of `manager`; its log is read by `communicate`."""
    instance = f"test-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    nexuskvd = [sys.executable, "-m", "nexuskv_daemon", "--instance", instance, "--memory", "8MiB"]
    with subprocess.Popen(
        activated(nexuskvd, sock.fileno()),
        env={**os.environ, "NOTIFY_SOCKET": manager.getsockname()},
        pass_fds=[sock.fileno()],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def stop(process: "subprocess.Popen[str]") -> str:
    """Stop as `systemctl stop` does; returns the log of a clean end."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0, log
    return log


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which the service manager is told."""
    with notify_socket(str(tmp_path / "notify")) as sock:
        yield sock


def test_a_client_that_came_before_the_daemon_is_served(tmp_path: Path, manager: socket.socket) -> None:
    path = tmp_path / "nexuskvd.sock"
    with listening(path) as sock, service(sock, manager) as process:
        with nexuskv.connect(f"unix:{path}") as client:
            client.stats()
        stop(process)

    assert path.exists()  # it is the service manager's, which goes on listening for the next client


def test_ready_and_stopping_are_told_in_order(tmp_path: Path, manager: socket.socket) -> None:
    with listening(tmp_path / "nexuskvd.sock") as sock, service(sock, manager) as process:
        ready = manager.recv(4096).decode().splitlines()
        stop(process)
        stopping = manager.recv(4096).decode().splitlines()

    assert [line.partition("=")[0] for line in ready] == ["READY", "STATUS"]
    assert [line.partition("=")[0] for line in stopping] == ["STOPPING", "STATUS"]


def test_a_stream_socket_stops_the_start_with_a_sentence(tmp_path: Path, manager: socket.socket) -> None:
    path = tmp_path / "nexuskvd.sock"
    with listening(path, socket.SOCK_STREAM) as sock, service(sock, manager) as process:
        _, log = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "ListenSequentialPacket=" in log
    assert "Traceback" not in log
