"""RDMA between daemons with certificates: pages come, and keys are told to whom they may be told alone."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nexuskv
from nexuskv_daemon.peers import messages as p
from nexuskv_transport import Tls, tls
from tests.softroce import far_daemon
from tests.softroce.far_daemon import LARGE, MEMORY, FarDaemon, opened
from tests.softroce.guests import FIRST, SECOND
from tests.softroce.paths import known, pages_come_by, path
from tests.support import pages, presets
from tests.support.hosts import TENANT, Host, running
from tests.transport.certificates import Site

PORT = 7900
BOTH = ("--memory", "48MiB", "--segment-bytes", "8MiB", "--data", "rdma:", "--data", "tcp:")
KIND = "deepseek-v3-mla-page16"
SECONDS = 20.0


class Secured(NamedTuple):
    """Daemons of one authority, an engine on this host, and a certificate for who sees another tenant alone."""

    far: FarDaemon
    near: Host
    here: nexuskv.Client
    nosy: Tls


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    site = Site(tmp_path_factory.mktemp("site") / "certificates")
    ours = site.host("first", tenants=(TENANT,), addresses=(FIRST.address,))
    theirs = site.host("second", tenants=(TENANT,), addresses=(SECOND.address,))
    nosy = site.host("nosy", tenants=("somebody-else",), addresses=(FIRST.address,))
    files = (theirs.certificate, theirs.key, theirs.authority)
    with far_daemon.running(PORT) as far:
        far.start(*BOTH, *options(theirs), files={name: Path(name).read_text() for name in files})
        host = Host(
            *BOTH, *options(ours), memory=MEMORY, ip=FIRST.address, port=PORT, peers=[far.address]
        )  # fmt: skip
        with running(host), host.client() as here:
            pages_come_by(here, far, "rdma")
            yield Secured(far, host, here, nosy)


def options(told: Tls) -> list[str]:
    return ["--tls-certificate", told.certificate, "--tls-key", told.key, "--tls-authority", told.authority]


@pytest.fixture(autouse=True)
def nothing_left_by_the_test() -> None:
    """As for the other daemons: what is left is seen at the end of the run."""


def test_pages_come_by_rdma_between_hosts_with_certificates(secured: Secured) -> None:
    far, _, here, _ = secured
    cache = opened(here, KIND)
    far.put(KIND, 4)
    keys = presets.keys(cache, 4)
    rdma, tcp = path(here, far, "rdma").bytes_in, path(here, far, "tcp").bytes_in
    came = cache.fetch(keys, within=SECONDS)
    assert (came.pages, came.source) == (4, far.address)
    assert pages.verified(cache, keys) == 4
    assert path(here, far, "rdma").bytes_in - rdma == came.bytes
    assert path(here, far, "tcp").bytes_in == tcp
    assert known(here, far).bad_pages == 0


def test_memory_that_goes_to_other_pages_is_withdrawn_and_exposed_anew(secured: Secured) -> None:
    far, near, here, _ = secured
    tcp = path(here, far, "tcp").bytes_in
    for branch, kind, count in ((2, KIND, 20), (2, LARGE, 32), (3, KIND, 20), (3, LARGE, 32)):
        here.evict()  # what is empty then goes to whoever needs it, as a new segment
        cache = opened(here, kind)
        keys = presets.keys(cache, count, branch)
        assert far.put(kind, count, branch) == count
        assert cache.fetch(keys, within=SECONDS).reason == ""
        assert pages.verified(cache, keys) == count
    assert path(here, far, "tcp").bytes_in == tcp
    assert known(here, far).bad_pages == 0
    assert "fault" not in near.daemon.log
    assert "not exposed" not in near.daemon.log


def test_who_may_not_see_a_tenant_is_told_no_key_of_it(secured: Secured) -> None:
    far, _, here, nosy = secured
    cache = opened(here, KIND)
    far.put(KIND, 2, branch=1)
    keys = presets.keys(cache, 2, branch=1)
    asked: list[p.Request] = [
        p.Open(1, TENANT, cache.descriptor.digest),
        *(p.Pin(2 + arena, arena, keys) for arena in range(8)),  # also of arenas that it did not open
    ]
    heard = _conversation(tls.client_context(nosy), asked)
    assert len(heard) == len(asked)
    assert all(isinstance(each, p.Refused) for each in heard)


def test_who_shows_no_certificate_is_told_nothing(secured: Secured) -> None:
    anybody = ssl.create_default_context(cafile=secured.nosy.authority)
    assert _conversation(anybody, [p.Ping(1)]) == []


def _conversation(context: ssl.SSLContext, requests: list[p.Request]) -> list[p.AnyMessage]:
    """What the daemon there says after its hello, until all requests are answered or it ends the conversation."""
    frames, heard = p.Frames(), list[p.AnyMessage]()
    hello = p.Hello(0, p.PROTOCOL_VERSION, "nosy", 4711, "", ["rdma://10.77.0.1:1"])
    with (
        contextlib.suppress(OSError),
        socket.create_connection((SECOND.address, PORT), timeout=SECONDS) as sock,
        context.wrap_socket(sock, server_hostname=SECOND.address) as stream,
    ):
        stream.sendall(b"".join(map(p.frame, (hello, *requests))))
        left = {request.id for request in requests}
        while left and (data := stream.recv(65536)):
            heard += [each for each in frames.feed(data) if not isinstance(each, p.Hello | p.Ping)]
            left -= {each.id for each in heard}
    return heard
