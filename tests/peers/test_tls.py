"""Who may see what between hosts: certificates of one authority, tenants by their names, plain on loopback alone."""

from pathlib import Path

import nexuskv
from nexuskv_transport import Tls
from tests.support import pages
from tests.support.daemon import Daemon
from tests.support.hosts import TENANT, Host, opened, peer, running, wait_for
from tests.support.waiting import until
from tests.transport.certificates import PAST, Site


def options(tls: Tls) -> list[str]:
    return ["--tls-certificate", tls.certificate, "--tls-key", tls.key, "--tls-authority", tls.authority]


def trouble(client: nexuskv.Client, other: Host) -> str:
    found = peer(client, other.address)
    return found.trouble if found is not None else ""


def test_hosts_of_one_authority_pull_from_each_other(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    first = Host(*options(site.host("first", tenants=(TENANT,))))
    second = Host(*options(site.host("second", tenants=(TENANT,))), peers=[first.address])
    with running(first, second), first.client() as there, second.client() as here:
        wait_for(here, first)
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 8)
        pages.put(theirs, keys)
        assert ours.fetch(keys).pages == 8
        assert pages.verified(ours, keys) == 8


def test_a_host_of_another_authority_is_not_spoken_to(tmp_path: Path) -> None:
    first = Host(*options(Site(tmp_path / "one").host("first", tenants=(TENANT,))))
    second = Host(*options(Site(tmp_path / "two").host("second", tenants=(TENANT,))), peers=[first.address])
    with running(first, second), second.client() as here:
        until(lambda: "certificate" in trouble(here, first), "it says what is wrong")
        assert opened(here).fetch(pages.keys(opened(here), 2)).pages == 0


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    first = Host(*options(site.host("first", tenants=(TENANT,), valid=PAST)))
    second = Host(*options(site.host("second", tenants=(TENANT,))), peers=[first.address])
    with running(first, second), second.client() as here:
        until(lambda: "expired" in trouble(here, first), "it says what is wrong")


def test_a_peer_sees_only_the_tenants_that_its_certificate_names(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    first = Host(*options(site.host("first", tenants=(TENANT,))))
    nosy = Host(*options(site.host("nosy", tenants=("somebody-else",))), peers=[first.address])
    with running(first, nosy), first.client() as there, nosy.client() as here:
        wait_for(here, first)
        theirs, ours = opened(there), opened(here)
        keys = pages.keys(theirs, 4)
        pages.put(theirs, keys)
        came = ours.fetch(keys)
        assert came.pages == 0
        assert opened(here).lookup(keys) == 0
        # Nor does the other host believe it anything about that tenant.
        mine = pages.keys(ours, 4, branch=1)
        pages.put(ours, mine)
        refused = theirs.fetch(mine)
        assert refused.pages == 0
        assert f"no connected peer is for tenant '{TENANT}', but for somebody-else" in refused.reason


def test_who_shows_no_certificate_is_not_served(tmp_path: Path) -> None:
    first = Host(*options(Site(tmp_path / "site").host("first", tenants=(TENANT,))))
    plain = Host(peers=[first.address])
    with running(first, plain), plain.client() as here:
        until(lambda: trouble(here, first), "the plain host was turned away")
        assert opened(here).fetch(pages.keys(opened(here), 2)).pages == 0


def test_plain_peers_see_the_tenants_of_the_options_alone() -> None:
    first = Host("--plain-tenant", "uid:987654")
    second = Host(peers=[first.address])
    with running(first, second), first.client() as there, second.client() as here:
        wait_for(here, first)
        keys = pages.keys(opened(there), 3)
        pages.put(opened(there), keys)
        assert opened(here).fetch(keys).pages == 0


REFUSED = {
    "plain beyond loopback": (["--listen", "tcp://0.0.0.0:0"], "loopback only"),
    "nothing to tell": (["--listen", "tcp://0.0.0.0:0", "--insecure-peers"], "--advertise"),
    "no address": (["--listen", "udp://here:1"], "write tcp://"),
    "no address of a peer": (["--peer", "somewhere"], "write tcp://"),
    "no such file": (
        ["--peer", "tcp://127.0.0.1:1", "--tls-certificate=a", "--tls-key=b", "--tls-authority=c"],
        "nexuskv certs",
    ),
    "no such way to move pages": (
        ["--listen", "tcp://127.0.0.1:0", "--data", "pigeon:1"],
        "names no transport",
    ),
}


def test_what_cannot_be_is_refused_at_the_start() -> None:
    for options, sentence in REFUSED.values():
        daemon = Daemon(*options)
        try:
            assert daemon.process.wait(timeout=30) == 1
            assert sentence in daemon.log
            assert daemon.objects() == []
        finally:
            daemon.clean_up()


def test_options_may_stand_in_a_file(tmp_path: Path) -> None:
    first = Host()
    file = tmp_path / "nexuskvd.toml"
    file.write_text(f'peer = ["{first.address}", "tcp://127.0.0.1:1"]\nlog-level = "debug"\nkeep = false\n')
    second = Host("--config", str(file))
    with running(first, second), second.client() as here:
        wait_for(here, first)
        assert len(here.peers().peers) == 2
