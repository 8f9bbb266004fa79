"""The suites that `nexuskv bench` knows, one row each."""

from nexuskv.bench import core, index, tcp

SUITES = {suite.name: suite for suite in (core.SUITE, index.SUITE, tcp.SUITE)}
