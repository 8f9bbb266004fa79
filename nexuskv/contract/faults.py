"""Turns msgspec's complaints into errors of the contract.

Owns the translation of a msgspec message and path into the field it blames. Knows nothing of descriptors but the names
of the fields that hold words of a closed list, so that a refusal can say which words there are.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

import msgspec

from nexuskv.contract.dtypes import DType
from nexuskv.contract.vocabulary import (
    Arrangement,
    DimensionOrder,
    EngineFamily,
    Flag,
    Granularity,
    Role,
    Scheme,
    unknown_word,
)
from nexuskv.errors import DescriptorError

_WORDS: Final[dict[str, type[StrEnum]]] = {
    "engine_family": EngineFamily,
    "granularity": Granularity,
    "role": Role,
    "dtype": DType,
    "arrangement": Arrangement,
    "dimension_order": DimensionOrder,
    "scheme": Scheme,
    "compatibility_flags": Flag,
}
_MESSAGE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?", re.DOTALL)
_OBJECT: Final = re.compile(r"Object (?P<fault>contains unknown|missing required) field `(?P<name>[^`]*)`")
_VALUE: Final = re.compile(r"Invalid enum value '(?P<value>.*)'", re.DOTALL)


@contextmanager
def named(field: str = "") -> Iterator[None]:
    """Raise what msgspec refuses inside as a DescriptorError whose field begins with `field`."""
    try:
        yield
    except msgspec.DecodeError as error:
        raise translate(error, field) from None


def translate(error: msgspec.DecodeError, field: str = "") -> DescriptorError:
    """The DescriptorError of a msgspec error that was met while reading `field`."""
    parts = _MESSAGE.fullmatch(str(error))
    path = _join(field, (parts and parts["path"]) or "")
    if isinstance(error.__cause__, DescriptorError):
        cause = error.__cause__
        return DescriptorError(_join(path, cause.field), str(cause).removeprefix(f"{cause.field}: "))
    what = parts["what"] if parts else str(error)
    if fault := _OBJECT.fullmatch(what):
        return _object_fault(path, fault["fault"], fault["name"])
    return DescriptorError(path, _sentence(path, what))


def _object_fault(path: str, fault: str, name: str) -> DescriptorError:
    missing = fault.startswith("missing")
    return DescriptorError(_join(path, name), "missing; it is required" if missing else "unknown field; leave it out")


def _sentence(path: str, what: str) -> str:
    words = _WORDS.get(re.sub(r"\[.*?\]", "", path).rpartition(".")[2])
    value = _VALUE.fullmatch(what)
    return unknown_word(words, value["value"]) if words and value else what


def _join(prefix: str, suffix: str) -> str:
    suffix = suffix.removeprefix(".").removesuffix("[...]")
    return prefix + suffix if suffix.startswith("[") or not prefix or not suffix else f"{prefix}.{suffix}"
