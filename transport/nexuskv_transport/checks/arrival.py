"""Checks of what arrives: every byte that was asked for, and none beside it."""

from nexuskv_transport.checks.far import REGION_BYTES
from nexuskv_transport.checks.pair import Pair
from nexuskv_transport.checks.pulling import all_ok, arrived, pull_all, side_by_side

MIB = 1 << 20


def one_page(pair: Pair) -> None:
    """A page of 64 KiB."""
    (pull,) = side_by_side(pair, [65536], [4096])
    connection = pair.connect()
    assert all_ok(pull_all(connection, [pull]))
    assert arrived(pull)
    assert connection.received == 65536
    assert connection.ended is None


def a_batch(pair: Pair) -> None:
    """64 pages in one call, from places in no order."""
    offsets = [(index * 37 % 64) * 65536 for index in range(64)]
    pulls = side_by_side(pair, [65536] * 64, offsets)
    assert all_ok(pull_all(pair.connect(), pulls))
    assert all(map(arrived, pulls))


def sizes(pair: Pair) -> None:
    """From 1 byte to 16 MiB, in one call."""
    sizes = [1, 2, 63, 64, 4095, 4096, 65536, MIB, 16 * MIB]
    pulls = side_by_side(pair, sizes, [128] * len(sizes))
    assert all_ok(pull_all(pair.connect(), pulls))
    assert all(map(arrived, pulls))


def odd_places(pair: Pair) -> None:
    """Offsets and lengths of no alignment, up to the last byte of the region."""
    sizes = [1, 3, 1000, 4097, 65537, 1_000_003]
    offsets = [1, 7, 4095, 65535, 12345, REGION_BYTES - 1_000_003]
    pulls = side_by_side(pair, sizes, offsets)
    assert all_ok(pull_all(pair.connect(), pulls))
    assert all(map(arrived, pulls))


def nothing_beside(pair: Pair) -> None:
    """What lies between the extents stays as it is."""
    memory = pair.memory(1 << 20)
    pulls = side_by_side(pair, [5000] * 10, range(0, 10 * 5000, 5000))
    pulls = [pull._replace(into=memory[pull.id * 9000 + 1 :][:5000]) for pull in pulls]
    assert all_ok(pull_all(pair.connect(), pulls))
    assert all(map(arrived, pulls))
    for pull in pulls:
        pull.into[:] = bytes(5000)
    assert memory == bytes(1 << 20)


def twice(pair: Pair) -> None:
    """An extent and an id are free again once their pull is done."""
    connection = pair.connect()
    (pull,) = side_by_side(pair, [65536], [0])
    for offset in (0, 65536, 1):
        again = pull._replace(offset=offset)
        assert all_ok(pull_all(connection, [again]))
        assert arrived(again)


CHECKS = (one_page, a_batch, sizes, odd_places, nothing_beside, twice)
