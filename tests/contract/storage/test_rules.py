"""Each rule of a storage declaration is kept: just inside passes, just outside fails with its own code and field."""

import pytest

from nexuskv.contract.storage import Rule
from nexuskv.errors import LocalError, StorageError
from tests.contract.storage.edges import PARTS, Edge
from tests.contract.storage.edges_of_profiles import PROFILES
from tests.contract.storage.edges_of_use import DESCRIPTORS, FAMILIES, PROGRAMS

EDGES = PARTS | PROFILES | PROGRAMS | FAMILIES | DESCRIPTORS


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
def test_inside_passes_and_outside_names_rule_and_field(edge: Edge) -> None:
    edge.inside()
    with pytest.raises(StorageError) as caught:
        edge.outside()
    assert (caught.value.rule, caught.value.field) == (edge.rule, edge.field)
    sentence = str(caught.value)
    assert sentence.startswith(f"{edge.field}: ")
    assert sentence.count(f"{edge.field}: ") == 1


def test_every_rule_has_both_sides() -> None:
    assert {edge.rule for edge in EDGES.values()} == set(Rule)


def test_it_is_the_callers_fault() -> None:
    assert issubclass(StorageError, LocalError)
    assert StorageError.code == "bad_storage"
