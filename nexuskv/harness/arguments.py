"""Types of command-line arguments that demo and benchmarks share."""

import argparse
import re


def count(text: str) -> int:
    """How many of something, at least one."""
    if not re.fullmatch("0*[1-9][0-9]{0,17}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no number, or not at least 1")
    return int(text)
