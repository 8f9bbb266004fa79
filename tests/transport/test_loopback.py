"""The loopback transport does what every transport must."""

import secrets

import pytest

from nexuskv_transport import checks


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: checks.Check) -> None:
    with checks.in_process(f"loopback:{secrets.token_hex(4)}") as pair:
        check(pair)
