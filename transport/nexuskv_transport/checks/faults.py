"""Checks of what a peer may not read: asking costs the connection that asked, and no other."""

from msgspec.structs import replace

from nexuskv_transport.base import KeyedRegion, Outcome, Pull, Region, TokenRegion
from nexuskv_transport.checks.far import FOREIGN, REGION_BYTES, REVOKED, SERVED
from nexuskv_transport.checks.pair import Pair
from nexuskv_transport.checks.pulling import all_ok, arrived, pull_all, side_by_side, soon, wait_for


def forged(pair: Pair) -> None:
    """A region whose token or rkey was guessed."""
    _refused(pair, _guessed(pair.region(SERVED)), 0)


def outside(pair: Pair) -> None:
    """Bytes behind the end of a region, and bytes across it."""
    grown = _grown(pair.region(SERVED))
    _refused(pair, grown, REGION_BYTES)
    _refused(pair, grown, REGION_BYTES - 100)


def unknown(pair: Pair) -> None:
    """A number that nothing is exposed under, with keys that nobody has."""
    _refused(pair, replace(_guessed(pair.region(SERVED)), number=4_000_000_000), 0)


def revoked(pair: Pair) -> None:
    """A region that was withdrawn; it could be read before."""
    (pull,) = side_by_side(pair, [1000], [0], REVOKED)
    assert all_ok(pull_all(pair.connect(), [pull]))
    assert arrived(pull, REVOKED)
    pair.withdraw(REVOKED)
    _refused(pair, pair.region(REVOKED), 0)


def foreign(pair: Pair) -> None:
    """A region of a tenant that the connection was not admitted for, under its true token.

    (Devices know no tenants: there, the keys of foreign regions are what a peer is not told.)
    """
    if isinstance(pair.region(FOREIGN), TokenRegion):
        _refused(pair, pair.region(FOREIGN), 0)


def withdrawn_while_pulled(pair: Pair) -> None:
    """A region goes while it is read: each pull ends once, and what is reported as arrived is right."""
    pulls = side_by_side(pair, [1 << 20] * 64, [index % 32 << 20 for index in range(64)], REVOKED)
    connection = pair.connect()
    taken = connection.pull(pulls, soon())
    pair.withdraw(REVOKED)
    outcomes = wait_for(connection, taken)
    assert set(outcomes.values()) <= {Outcome.OK, Outcome.REFUSED, Outcome.CLOSED}
    assert all(arrived(pulls[id_], REVOKED) for id_, outcome in outcomes.items() if outcome is Outcome.OK)
    _goes_on(pair)


def _refused(pair: Pair, region: Region, offset: int) -> None:
    """The pull is refused and its connection ends; another one does not, and a new one is served."""
    other = pair.connect()
    (good,) = side_by_side(pair, [4096], [0])
    assert all_ok(pull_all(other, [good]))
    connection = pair.connect()
    outcomes = pull_all(connection, [Pull(0, region, offset, pair.memory(1000))])
    assert outcomes == {0: Outcome.REFUSED}, outcomes
    assert connection.ended
    (late,) = side_by_side(pair, [4096], [0])
    assert pull_all(connection, [late]) == {0: Outcome.CLOSED}
    assert other.ended is None
    assert all_ok(pull_all(other, [good]))
    _goes_on(pair)


def _goes_on(pair: Pair) -> None:
    (pull,) = side_by_side(pair, [4096], [8192])
    assert all_ok(pull_all(pair.connect(), [pull]))
    assert arrived(pull)


def _guessed(region: Region) -> Region:
    match region:
        case TokenRegion():
            return replace(region, token=bytes(len(region.token)))
        case KeyedRegion():
            return replace(
                region, chunks=tuple(replace(each, rkey=each.rkey ^ 0x5A5A) for each in region.chunks)
            )


def _grown(region: Region) -> Region:
    """The same region, as a liar declares it: twice as large."""
    match region:
        case TokenRegion():
            return replace(region, nbytes=region.nbytes * 2)
        case KeyedRegion():
            *first, last = region.chunks
            last = replace(last, nbytes=last.nbytes + region.nbytes)
            return replace(region, nbytes=region.nbytes * 2, chunks=(*first, last))


CHECKS = (forged, outside, unknown, revoked, foreign, withdrawn_while_pulled)
