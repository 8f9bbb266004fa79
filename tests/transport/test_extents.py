"""Claims on local memory, against a plain set of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from nexuskv_transport.extents import Extents


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=40))
def test_no_two_claims_share_a_byte(wishes: list[tuple[int, int]]) -> None:
    extents, claimed = Extents(), dict[int, set[int]]()
    for start, nbytes in wishes:
        wish = set(range(start, start + nbytes))
        free = wish.isdisjoint(set().union(*claimed.values()))
        assert extents.claim(start, nbytes) == free
        if free:
            claimed[start] = wish
        elif start in claimed:
            extents.release(start)
            del claimed[start]
