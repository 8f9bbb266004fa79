"""Boundaries of groups whose bytes follow from their keys, as `pages` has it for single descriptors."""

import nexuskv
from nexuskv.client.group_match import GroupKeys
from tests.support.pages import fill, intact


def boundary_keys(group: nexuskv.Group, boundaries: int, branch: int = 0) -> list[list[bytes]]:
    """Keys of a sequence of so many boundaries; two branches share none."""
    return group.keys([branch] * (boundaries * group.tokens))


def fill_boundary(boundary: nexuskv.ReservedBoundary) -> None:
    """Writes the content of each page of each member."""
    for pages in boundary:
        fill(pages)


def put_boundaries(group: nexuskv.Group, keys: GroupKeys) -> int:
    """Computes and commits what is absent; returns how many boundaries that were."""
    with group.reserve(keys) as reservation:
        for boundary in reservation:
            fill_boundary(boundary)
    return len(reservation)


def verified_boundary(group: nexuskv.Group, keys: GroupKeys) -> int:
    """The boundary that is found; every byte of every page that it needs is checked."""
    with group.match(keys) as hit:
        assert all(intact(each) for each in hit)
        assert hit.tokens == hit.boundary * group.tokens
        return hit.boundary
