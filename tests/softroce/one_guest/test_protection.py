"""What a key opens, and to whom: reading, for a peer of its tenant. All else costs that connection, and no other."""

from collections.abc import Iterator

import pytest

from nexuskv_transport import KeyedRegion, Outcome
from nexuskv_transport.checks.pulling import all_ok, pull_all
from nexuskv_transport.rdma.channel import parse
from nexuskv_transport.rdma.handshake import Turned
from tests.softroce.ends import PAGE, Ends, both, exposed, page_of

OURS, THEIRS = "ours", "theirs"
SUCCESS, REFUSED = 0, {9, 10}  # statuses: REM_INV_REQ_ERR, REM_ACCESS_ERR


@pytest.fixture
def ends() -> Iterator[Ends]:
    with both(OURS, THEIRS) as made:
        yield made


def test_a_key_of_another_tenant_is_useless_even_to_who_may_read_both(ends: Ends) -> None:
    with (
        exposed(ends.serving, 1, THEIRS, b"t" * PAGE) as (_, region),
        exposed(ends.pulling, 1, OURS, bytes(PAGE)) as (into, _),
        exposed(ends.pulling, 2, THEIRS, bytes(PAGE)) as (proper, _),
    ):
        with ends.connect() as connection:
            assert pull_all(connection, [page_of(region, into)]) == {0: Outcome.REFUSED}
            assert into == bytes(PAGE)
        with ends.connect() as connection:
            assert all_ok(pull_all(connection, [page_of(region, proper)]))
            assert proper == b"t" * PAGE


def test_a_tenant_that_is_not_admitted_gets_no_lane(ends: Ends) -> None:
    ends.admitted.remove(THEIRS)
    with (
        exposed(ends.serving, 1, THEIRS, b"t" * PAGE) as (_, region),
        exposed(ends.pulling, 1, THEIRS, bytes(PAGE)) as (into, _),
        ends.connect() as connection,
    ):
        assert pull_all(connection, [page_of(region, into)]) == {0: Outcome.REFUSED}
        assert "not admitted" in (connection.ended or "")


@pytest.mark.parametrize("opcode", ["WRITE", "COMPARE_AND_SWAP"])
def test_nobody_can_write(ends: Ends, opcode: str) -> None:
    from tests.softroce import hostile  # noqa: PLC0415  # it imports pyverbs, which is in the guest

    with (
        exposed(ends.serving, 1, OURS, b"o" * PAGE) as (memory, region),
        exposed(ends.pulling, 1, OURS, bytes(PAGE)) as (into, _),
        ends.connect() as other,
    ):
        assert all_ok(pull_all(other, [page_of(region, into)]))
        assert isinstance(region, KeyedRegion)
        chunk = region.chunks[0]
        with hostile.Hostile(parse(ends.address), OURS) as peer:
            assert peer.ask(hostile.READ, chunk.address, chunk.rkey) == SUCCESS
            assert peer.ask(getattr(hostile, opcode), chunk.address, chunk.rkey) in REFUSED
        assert memory == b"o" * PAGE
        assert all_ok(pull_all(other, [page_of(region, into)]))


def test_a_hostile_peer_gets_no_lane_of_another_tenant(ends: Ends) -> None:
    from tests.softroce import hostile  # noqa: PLC0415  # it imports pyverbs, which is in the guest

    ends.admitted.remove(THEIRS)
    with hostile.Hostile(parse(ends.address), THEIRS) as peer:
        assert isinstance(peer.answer, Turned)
