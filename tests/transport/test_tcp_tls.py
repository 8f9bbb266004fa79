"""TCP with mutual TLS: the same conformance, and every way in which a certificate can be wrong."""

import socket
import ssl
from pathlib import Path

import pytest

from nexuskv.errors import StartupError
from nexuskv_transport import Identity, Outcome, Tls, checks, open_transport
from tests.transport.certificates import PAST, Site
from tests.transport.serving import TENANT, connected, fetch, served, serving


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("tls") / "site")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("tls") / "stranger")


@pytest.fixture(scope="module")
def good(site: Site) -> Tls:
    return site.host("good")


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: checks.Check, good: Tls) -> None:
    with checks.processes("tcp://127.0.0.1:0", good, good) as pair:
        check(pair)


def test_tenants_are_those_of_the_certificate(site: Site, good: Tls) -> None:
    seen: list[Identity] = []

    def admit(identity: Identity) -> frozenset[str]:
        seen.append(identity)
        return identity.tenants

    with serving(good, admit) as server:
        client = site.host("two", tenants=(TENANT, "another"))
        assert served(server.address, server.region, client)
    assert {identity.tenants for identity in seen} == {frozenset({TENANT, "another"})}
    assert all(identity.name.startswith("127.0.0.1 at tcp://127.0.0.1:") for identity in seen)


def refused(client: Tls, server_side: Tls) -> tuple[Outcome, str, str]:
    """A pull that cannot succeed: its outcome, and why each side says it is over."""
    with serving(server_side) as server, connected(server.address, client) as connection:
        outcome, _ = fetch(connection, server.region)
        return outcome, str(connection.ended), server.all_said()


def test_expired_client(site: Site, good: Tls) -> None:
    outcome, here, there = refused(site.host("old", valid=PAST), good)
    assert outcome is Outcome.CLOSED
    assert "certificate expired" in here
    assert "certificate has expired" in there


def test_expired_server(site: Site, good: Tls) -> None:
    outcome, here, there = refused(good, site.host("old", valid=PAST))
    assert outcome is Outcome.CLOSED
    assert "certificate has expired" in here
    assert "certificate expired" in there


def test_client_of_another_authority(stranger: Site, good: Tls) -> None:
    outcome, here, there = refused(stranger.host("liar", authority=good.authority), good)
    assert outcome is Outcome.CLOSED
    assert "TLS failed: tlsv1 alert unknown ca" in here
    assert "certificate is not accepted" in there


def test_server_of_another_authority(stranger: Site, good: Tls) -> None:
    outcome, here, _ = refused(good, stranger.host("liar", authority=good.authority))
    assert outcome is Outcome.CLOSED
    assert "certificate is not accepted" in here


def test_server_of_another_name(site: Site, good: Tls) -> None:
    outcome, here, _ = refused(good, site.host("elsewhere", addresses=("10.9.8.7", "elsewhere.example")))
    assert outcome is Outcome.CLOSED
    assert "IP address mismatch" in here


def test_no_tenant_at_all(site: Site, good: Tls) -> None:
    outcome, here, there = refused(site.host("nobody", tenants=()), good)
    assert outcome is Outcome.CLOSED
    assert "admits no tenant of this host" in here
    assert "names none that is known here" in there


def test_another_tenants_pages(site: Site, good: Tls) -> None:
    outcome, here, there = refused(site.host("other", tenants=("another",)), good)
    assert outcome is Outcome.REFUSED
    assert "is not for this host" in here
    assert "belongs to tenant 'ours'" in there


def test_client_without_certificate(good: Tls) -> None:
    context = ssl.create_default_context(cafile=good.authority)
    with serving(good) as server:
        sock = socket.create_connection(("127.0.0.1", server.port))
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as secured, pytest.raises(ssl.SSLError):
            secured.recv(1)
        assert "peer did not return a certificate" in server.end()


def test_plain_client_of_a_tls_server(good: Tls) -> None:
    with serving(good) as server:
        with connected(server.address) as connection:
            assert fetch(connection, server.region)[0] is Outcome.CLOSED
        assert "handshake failed" in server.end()
        assert served(server.address, server.region, good)


def test_tls_client_of_a_plain_server(good: Tls) -> None:
    with serving() as server:
        with connected(server.address, good) as connection:
            assert fetch(connection, server.region)[0] is Outcome.CLOSED
            assert connection.ended
        assert "does not speak the page protocol" in server.end()
        assert served(server.address, server.region)


def test_old_versions_of_tls_are_not_spoken(good: Tls) -> None:
    context = ssl.create_default_context(cafile=good.authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(good) as server:
        sock = socket.create_connection(("127.0.0.1", server.port))
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"), sock:
            context.wrap_socket(sock, server_hostname="127.0.0.1")
        assert "unsupported protocol" in server.end()


def test_files_that_are_not_there(tmp_path: Path, good: Tls) -> None:
    missing = str(tmp_path / "absent.pem")
    with pytest.raises(StartupError, match=r"absent.pem is not there; `nexuskv certs` makes"):
        open_transport("tcp:", Tls(missing, good.key, good.authority))


def test_files_that_do_not_belong_together(site: Site, good: Tls) -> None:
    with pytest.raises(StartupError, match="are not the PEM files"):
        open_transport("tcp:", Tls(good.certificate, site.host("another").key, good.authority))
    with pytest.raises(StartupError, match="are not the PEM files"):
        open_transport("tcp:", Tls(good.certificate, good.key, __file__))
