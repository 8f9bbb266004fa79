"""Fixtures of the native tests: one tenant's objects."""

from collections.abc import Iterator

import pytest

from tests.native.objects import Objects


@pytest.fixture
def objects() -> Iterator[Objects]:
    with Objects() as made:
        yield made
