"""Keys and queue pairs are exchanged with mutual TLS: certificates say whose memory a peer may read."""

from pathlib import Path

from nexuskv_transport import Outcome, Tls
from nexuskv_transport.checks import arrival, processes
from nexuskv_transport.checks.far import OURS
from nexuskv_transport.checks.pulling import pull_all, side_by_side
from tests.softroce.ends import ADDRESS
from tests.transport.certificates import Site


def test_pages_arrive_by_certificates_of_one_authority(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    with processes(ADDRESS, site.host("near", tenants=(OURS,)), site.host("far", tenants=(OURS,))) as pair:
        arrival.one_page(pair)


def test_a_certificate_of_another_tenant_reads_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    assert (
        _outcome(site.host("near", tenants=("other",)), site.host("far", tenants=(OURS,))) is Outcome.REFUSED
    )


def test_a_certificate_of_another_authority_is_turned_away(tmp_path: Path) -> None:
    site, stranger = Site(tmp_path / "site"), Site(tmp_path / "stranger")
    near = stranger.host("near", tenants=(OURS,), authority=site.host("far").authority)
    assert _outcome(near, site.host("far", tenants=(OURS,))) is Outcome.CLOSED


def _outcome(near: Tls, far: Tls) -> Outcome:
    with processes(ADDRESS, near, far) as pair:
        (pull,) = side_by_side(pair, [4096], [0])
        (outcome,) = pull_all(pair.connect(), [pull]).values()
        return outcome
