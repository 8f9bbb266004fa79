"""Transports by their addresses: what is not asked for is not imported, and what is asked for wrongly is said."""

import subprocess
import sys

import pytest

from nexuskv.errors import LocalError, StartupError
from nexuskv_transport import Identity, Outcome, Plain, open_transport
from tests.transport.serving import connected, fetch, serving

PULL_OVER_TCP = """
import sys
from nexuskv_transport import checks
with checks.processes("tcp://127.0.0.1:0") as pair:
    checks.CHECKS[0](pair)
print(*sorted(name for name in sys.modules if name.startswith(("pyverbs", "nexuskv_transport.rdma", "nexuskv_daemon"))))
"""


def nobody(_: Identity) -> tuple[str, ...]:
    return ()


def test_tcp_imports_nothing_of_rdma() -> None:
    ended = subprocess.run([sys.executable, "-c", PULL_OVER_TCP], capture_output=True, text=True, check=True)
    assert ended.stdout == "\n"


@pytest.mark.parametrize("address", ["", "udp://127.0.0.1:1", "127.0.0.1:7800", "http://localhost"])
def test_unknown_schemes(address: str) -> None:
    with pytest.raises(LocalError, match="begin with loopback:, tcp:, rdma:"):
        open_transport(address)


@pytest.mark.parametrize(
    "address",
    [
        "tcp:",
        "tcp://",
        "tcp://host",
        "tcp://host:port",
        "tcp://host:70000",
        "tcp://u@host:1",
        "tcp://host:1/x",
        "tcp://::1:7",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    with open_transport("tcp:") as transport:
        with pytest.raises(LocalError, match="is no TCP address"):
            transport.connect(address)
        with pytest.raises(LocalError, match="is no TCP address"):
            transport.listen(address, nobody)


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://[::]:0"])
def test_plain_tcp_listens_on_loopback_alone(address: str) -> None:
    with (
        open_transport("tcp:") as transport,
        pytest.raises(StartupError, match="plain TCP is for loopback addresses"),
    ):
        transport.listen(address, nobody)


def test_plain_tcp_connects_to_loopback_alone() -> None:
    with serving() as server, connected("tcp://192.0.2.1:7800") as connection:
        assert fetch(connection, server.region)[0] is Outcome.CLOSED
        assert "configure TLS" in str(connection.ended)


def test_plain_tcp_anywhere_by_an_explicit_word() -> None:
    with (
        open_transport("tcp:", Plain(anywhere=True)) as transport,
        transport.listen("tcp://0.0.0.0:0", nobody) as listener,
    ):
        assert listener.address.startswith("tcp://0.0.0.0:")


def test_an_address_in_use() -> None:
    with (
        serving() as server,
        open_transport("tcp:") as transport,
        pytest.raises(StartupError, match=f"cannot listen on {server.address}: Address already in use"),
    ):
        transport.listen(server.address, nobody)


def test_numbers_are_exposed_once() -> None:
    memory = memoryview(bytearray(4096))
    with open_transport("tcp:") as transport:
        first = transport.expose(3, memory, tenant="t")
        with pytest.raises(LocalError, match="exposed already"):
            transport.expose(3, memory, tenant="t")
        transport.withdraw(3)
        with pytest.raises(LocalError, match="not exposed"):
            transport.withdraw(3)
        assert transport.expose(3, memory, tenant="t") != first
        with pytest.raises(LocalError, match="writable, contiguous"):
            transport.expose(4, memory.toreadonly(), tenant="t")
