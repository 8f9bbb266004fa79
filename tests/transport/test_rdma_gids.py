"""The order in which GIDs are tried."""

from ipaddress import IPv6Address

from nexuskv_transport.rdma.gids import INFINIBAND, ROCE_V1, ROCE_V2, Entry, ranked


def entry(row: int, gid: str, kind: int = ROCE_V2) -> Entry:
    return Entry(row, IPv6Address(gid), kind)


LINK_LOCAL_V1 = entry(0, "fe80::1", ROCE_V1)
LINK_LOCAL = entry(1, "fe80::1")
GLOBAL = entry(2, "2001:db8::1")
OTHER = entry(3, "::ffff:192.0.2.9")
OWN_V1 = entry(4, "::ffff:192.0.2.1", ROCE_V1)
OWN = entry(5, "::ffff:192.0.2.1")


def test_the_best_comes_first() -> None:
    table = [LINK_LOCAL_V1, LINK_LOCAL, GLOBAL, OTHER, OWN_V1, OWN]
    expected = [OWN, OTHER, GLOBAL, LINK_LOCAL, OWN_V1, LINK_LOCAL_V1]
    assert ranked(table, "192.0.2.1") == expected
    assert ranked(reversed(table), "192.0.2.1") == expected


def test_of_equal_rows_the_first() -> None:
    again = OTHER._replace(row=9)
    assert ranked([again, OTHER], "127.0.0.1") == [OTHER, again]


def test_both_ends_must_be_of_one_kind() -> None:
    assert OWN.matches(OTHER.kind, OTHER.gid.exploded)
    assert not OWN.matches(GLOBAL.kind, GLOBAL.gid.exploded)
    assert not OWN.matches(OWN_V1.kind, OWN_V1.gid.exploded)
    assert not OWN.matches(INFINIBAND, OWN.gid.exploded)
