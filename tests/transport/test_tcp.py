"""The TCP transport does what every transport must, between processes."""

import pytest

from nexuskv_transport import checks


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: checks.Check) -> None:
    with checks.processes("tcp://127.0.0.1:0") as pair:
        check(pair)
