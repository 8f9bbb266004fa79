"""The suites that `nexuskv bench` knows, one row each."""

from nexuskv.bench import contract, core, index, rdma, tcp

SUITES = {suite.name: suite for suite in (core.SUITE, index.SUITE, contract.SUITE, tcp.SUITE)}

ON_REQUEST = {suite.name: suite for suite in (rdma.SUITE,)}
"""These run only when they are named: they need what few hosts have."""
