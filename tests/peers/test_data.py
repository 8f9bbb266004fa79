"""Where pages are served: what `--data` may say, and hosts that lack what was asked for."""

from pathlib import Path

import pytest

from nexuskv.errors import StartupError
from nexuskv_daemon.peers.settings import DataAddress, Settings, data_addresses, reached_at
from tests.support import pages
from tests.support.daemon import Daemon
from tests.support.hosts import Host, peer, running, wait_for

LISTEN = "tcp://10.0.0.1:7800"
FORMS = {
    (): [("tcp://10.0.0.1:7801", "tcp://10.0.0.1:7801")],
    ("tcp://10.0.0.9:1",): [("tcp://10.0.0.9:1", "tcp://10.0.0.9:1")],
    ("rdma:",): [("rdma://10.0.0.1:7802", "rdma://10.0.0.1:7802")],
    ("rdma://mlx5_0",): [("rdma://mlx5_0", "rdma://10.0.0.1:7802")],
    ("rdma://[::1]:5",): [("rdma://[::1]:5", "rdma://[::1]:5")],
    ("tcp:", "rdma://rxe0"): [
        ("rdma://rxe0", "rdma://10.0.0.1:7802"),
        ("tcp://10.0.0.1:7801", "tcp://10.0.0.1:7801"),
    ],
}


@pytest.mark.parametrize("said", FORMS)
def test_pages_are_served_beside_the_control_port_and_by_rdma_first(said: tuple[str, ...]) -> None:
    assert data_addresses(Settings(listen=LISTEN, data=said)) == [DataAddress(*each) for each in FORMS[said]]


def test_nobody_is_served_where_nothing_listens() -> None:
    assert data_addresses(Settings()) == []
    with pytest.raises(StartupError, match="rdma://HOST:PORT"):
        data_addresses(Settings(data=("rdma:",)))


def test_all_addresses_of_a_host_stand_for_the_one_that_peers_reach() -> None:
    assert reached_at("rdma://0.0.0.0:5", "tcp://there.example:7800") == "rdma://there.example:5"
    assert reached_at("tcp://10.0.0.1:5", "tcp://there.example:7800") == "tcp://10.0.0.1:5"


@pytest.fixture
def without_pyverbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyverbs.py").write_text("raise ImportError('it is not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("without_pyverbs")
def test_a_host_without_rdma_says_so_and_serves_by_tcp() -> None:
    both = ("--data", "rdma:", "--data", "tcp:")
    first = Host(*both)
    second = Host(*both, peers=[first.address])
    with running(first, second), first.client() as there, second.client() as here:
        wait_for(here, first)
        theirs, ours = (client.open(pages.small(kib=64), model="model@1") for client in (there, here))
        keys = pages.keys(theirs, 4)
        pages.put(theirs, keys)
        assert ours.fetch(keys).pages == 4
        assert pages.verified(ours, keys) == 4
        known = peer(here, first.address)
        assert known is not None
        assert known.path == "tcp"
        assert [(path.name, path.bytes_in) for path in known.paths] == [("tcp", 4 * 65536)]
        assert "python3-pyverbs" in first.daemon.log


@pytest.mark.usefixtures("without_pyverbs")
def test_a_host_that_was_asked_for_rdma_alone_does_not_start_without() -> None:
    daemon = Daemon("--listen", "tcp://127.0.0.1:0", "--data", "rdma:")
    try:
        assert daemon.process.wait(timeout=30) == 1
        assert "python3-pyverbs" in daemon.log
        assert "Traceback" not in daemon.log
        assert daemon.objects() == []
    finally:
        daemon.clean_up()
