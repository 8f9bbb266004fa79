"""Suites of benchmarks, each figure against a floor measured in the same run."""
