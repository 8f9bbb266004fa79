"""Files that ship inside the package: a slice of a public request trace, with its licence note in README.md.

Owns where such a file lies in the installed package. Knows nothing of what is in it.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable


def mooncake_slice() -> Traversable:
    """The first 800 requests of the Mooncake conversation trace (JSON lines, Apache-2.0)."""
    return files(__name__) / "mooncake_conversation_head.jsonl"
