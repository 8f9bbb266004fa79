"""The suites that `nexuskv bench` knows, one row each."""

from nexuskv.bench import contract, core, index

SUITES = {suite.name: suite for suite in (core.SUITE, index.SUITE, contract.SUITE)}
