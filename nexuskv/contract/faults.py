"""Turns what msgspec refuses into errors of the contract, while decoding and while building in code.

Owns the translation of a msgspec message and path into the field it blames, and the rule that a struct built in code
is held to its declared types as a decoded one is. Of descriptors it knows only which fields hold words of a closed
list, so that a refusal can say which words there are.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Any, Final

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
# "Invalid enum value 'X' - at `$.tensor_specs[0].role`"; the path is missing where the root itself is at fault
_MESSAGE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?", re.DOTALL)
_OBJECT: Final = re.compile(
    r"Object (?P<fault>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL
)
_VALUE: Final = re.compile(r"Invalid (?:enum )?value (?P<quote>['\"]?)(?P<value>.*)(?P=quote)", re.DOTALL)


def hold_to_types(struct: msgspec.Struct) -> None:
    """Bring each field to its declared type, so that a struct built in code equals its decoded twin.

    Lists become tuples and words become members. Raises DescriptorError. For `__post_init__`, before any other check.
    """
    for name, declared in _field_types(type(struct)):
        with named(name):
            value = msgspec.convert(getattr(struct, name), declared)
        msgspec.structs.force_setattr(struct, name, value)


@cache
def _field_types(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


@contextmanager
def named(field: str = "") -> Iterator[None]:
    """Raise what msgspec refuses inside as a DescriptorError whose field begins with `field`."""
    try:
        yield
    except msgspec.DecodeError as error:
        raise _translate(error, field) from None
    except RecursionError:  # of bytes that open a thousand arrays; whoever sent them must not end the reader
        raise DescriptorError(field, "nested far deeper than a descriptor is") from None


def _translate(error: msgspec.DecodeError, field: str) -> DescriptorError:
    message = _MESSAGE.fullmatch(str(error))
    what, path = (message["what"], message["path"] or "") if message else (str(error), "")
    path = _join(field, path)
    if isinstance(
        error.__cause__, DescriptorError
    ):  # raised by a struct's own checks, which knew the inner field
        inner = error.__cause__
        return DescriptorError(_join(path, inner.field), str(inner).removeprefix(f"{inner.field}: "))
    if fault := _OBJECT.fullmatch(what):
        missing = fault["fault"] == "missing required"
        sentence = "missing; it is required" if missing else "unknown field; leave it out"
        return DescriptorError(_join(path, fault["name"]), sentence)
    return DescriptorError(path, _sentence(path, what))


def _sentence(path: str, what: str) -> str:
    """What msgspec says, or for an unknown word the list of those there are."""
    value = _VALUE.fullmatch(what)
    if value is None:
        return what
    words = _WORDS.get(re.sub(r"\[.*?\]", "", path).rpartition(".")[2])
    return unknown_word(words, value["value"]) if words else f"{value['value']!r} is unknown to this version"


def _join(prefix: str, suffix: str) -> str:
    """Append a msgspec path, ".name" or "[0]" or "[...]" for any item, to a field."""
    suffix = suffix.removeprefix(".").removesuffix("[...]")
    return prefix + suffix if suffix.startswith("[") or not prefix or not suffix else f"{prefix}.{suffix}"
