"""The RDMA transport does what every transport must: with real verbs, on a soft-RoCE device."""

import pytest

from nexuskv_transport import checks
from nexuskv_transport.checks import endings

ADDRESS = "rdma://127.0.0.1:0"  # of the control connection; the READs go through the guest's one device


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: checks.Check) -> None:
    with checks.in_process(ADDRESS) as pair:
        check(pair)


def test_a_process_is_killed() -> None:
    with checks.processes(ADDRESS) as pair:
        endings.killed(pair)
