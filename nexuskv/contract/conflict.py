"""Where two descriptors differ: what a conflict over one descriptor id reports.

Owns the comparison field by field. Knows nothing of whether a difference matters to an engine.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from nexuskv.contract.descriptor import Descriptor


def differing_fields(a: Descriptor, b: Descriptor) -> list[str]:
    """Paths of the fields that differ, such as `dims.layers` or `tensor_specs[0].dtype`; empty for equal ones."""
    left = msgspec.to_builtins(a, order="deterministic")
    right = msgspec.to_builtins(b, order="deterministic")
    return list(_differences("", left, right))


def _differences(path: str, left: Any, right: Any) -> Iterator[str]:
    """Descend as long as both sides have the same structure; lists of words count as one value."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in {**left, **right}:
            yield from _differences(f"{path}.{name}".lstrip("."), left.get(name), right.get(name))
    elif _are_structs(left) and _are_structs(right) and len(left) == len(right):
        for index, pair in enumerate(zip(left, right, strict=True)):
            yield from _differences(f"{path}[{index}]", *pair)
    elif left != right:
        yield path


def _are_structs(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, dict) for item in value)
