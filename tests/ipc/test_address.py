"""Where a daemon is looked for: what is written, what is found, what is refused."""

import os
from pathlib import Path

import pytest

from nexuskv.errors import BadRequest
from nexuskv.ipc import address


def test_an_address_is_a_scheme_and_a_path() -> None:
    assert address.parse("unix:/run/x.sock") == Path("/run/x.sock")
    assert address.parse("unix:relative.sock") == Path("relative.sock")


@pytest.mark.parametrize("text", ["", "/run/x.sock", "tcp:host:1", "unix:", "unix", "UNIX:/x"])
def test_anything_else_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(BadRequest, match="write unix:/path/to/socket"):
        address.parse(text)


def test_a_path_longer_than_the_kernels_is_refused_with_the_limit() -> None:
    assert address.parse("unix:/" + "x" * 106) == Path("/" + "x" * 106)

    with pytest.raises(BadRequest, match="107 bytes: choose a shorter one"):
        address.parse("unix:/" + "x" * 107)


def test_the_limit_counts_bytes_not_letters() -> None:
    with pytest.raises(BadRequest, match="107 bytes"):
        address.parse("unix:/" + "ü" * 60)


def test_the_environment_comes_first() -> None:
    assert address.find({"NEXUSKV_SOCKET": "unix:/chosen", "XDG_RUNTIME_DIR": "/run/user/1"}) == Path(
        "/chosen"
    )


def test_a_wrong_environment_is_an_error_and_not_passed_over() -> None:
    with pytest.raises(BadRequest, match="tcp:x"):
        address.find({"NEXUSKV_SOCKET": "tcp:x"})


def test_the_users_own_socket_lies_in_the_runtime_directory() -> None:
    assert address.user_socket("a", {"XDG_RUNTIME_DIR": "/run/user/1"}) == Path("/run/user/1/nexuskv/a.sock")


def test_without_a_runtime_directory_users_do_not_share_a_folder() -> None:
    assert address.user_socket("a", {}) == Path(f"/tmp/nexuskv-{os.getuid()}/a.sock")


def test_the_system_service_is_found_unless_the_user_runs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "system.sock"
    monkeypatch.setattr(address, "SYSTEM_SOCKET", system)
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    own = tmp_path / "nexuskv" / "default.sock"

    assert address.find(environ) == own  # neither is there: the one that the user would start
    system.touch()
    assert address.find(environ) == system
    own.parent.mkdir()
    own.touch()
    assert address.find(environ) == own
