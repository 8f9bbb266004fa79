"""Turns what msgspec refuses into errors of the contract, while decoding and while building in code.

Owns the translation of a msgspec message and path into the field it blames, and the rule that a struct built in code
is held to its declared types as a decoded one is. Of descriptors it knows only which fields hold words of a closed
list, so that a refusal can say which words there are.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
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

UNKNOWN_FIELD: Final = "unknown field; leave it out"

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


@contextmanager
def named(field: str = "") -> Iterator[None]:
    """Raise what msgspec refuses inside as a DescriptorError whose field begins with `field`."""
    try:
        yield
    except msgspec.DecodeError as error:
        raise _translate(error, field) from None
    except RecursionError:  # of bytes that open a thousand arrays; whoever sent them must not end the reader
        raise DescriptorError(field, "nested far deeper than a descriptor is") from None


def hold_to_types(
    struct: msgspec.Struct, blaming: Callable[[str], AbstractContextManager[None]] = named
) -> None:
    """Bring each field to its declared type, so that a struct built in code equals its decoded twin.

    Lists become tuples and words become members. Raises what `blaming` the field does, DescriptorError by default. For
    `__post_init__`, before any other check.
    """
    for name, declared in _field_types(type(struct)):
        with blaming(name):
            value = msgspec.convert(getattr(struct, name), declared)
        msgspec.structs.force_setattr(struct, name, value)


@cache
def _field_types(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


def _translate(error: msgspec.DecodeError, field: str) -> DescriptorError:
    if isinstance(
        error.__cause__, DescriptorError
    ):  # raised by a struct's own checks, which knew the inner field
        inner = error.__cause__
        path = join(field, blamed(error))
        return DescriptorError(join(path, inner.field), str(inner).removeprefix(f"{inner.field}: "))
    return DescriptorError(*explain(error, field, _WORDS))


def blamed(error: msgspec.DecodeError) -> str:
    """The msgspec path of what is at fault; empty for the root."""
    message = _MESSAGE.fullmatch(str(error))
    return (message["path"] or "") if message else ""


def explain(error: msgspec.DecodeError, field: str, words: Mapping[str, type[StrEnum]]) -> tuple[str, str]:
    """The field to mend, beginning with `field`, and the sentence; `words` are the closed lists by field name."""
    message = _MESSAGE.fullmatch(str(error))
    what = message["what"] if message else str(error)
    path = join(field, blamed(error))
    if fault := _OBJECT.fullmatch(what):
        missing = fault["fault"] == "missing required"
        return join(path, fault["name"]), "missing; it is required" if missing else UNKNOWN_FIELD
    return path, _sentence(path, what, words)


def _sentence(path: str, what: str, lists: Mapping[str, type[StrEnum]]) -> str:
    """What msgspec says, or for an unknown word the list of those there are."""
    value = _VALUE.fullmatch(what)
    if value is None:
        return what
    words = lists.get(re.sub(r"\[.*?\]", "", path).rpartition(".")[2])
    return unknown_word(words, value["value"]) if words else f"{value['value']!r} is unknown to this version"


def join(prefix: str, suffix: str) -> str:
    """Append a msgspec path, ".name" or "[0]" or "[...]" for any item, to a field."""
    suffix = suffix.removeprefix(".").removesuffix("[...]")
    return prefix + suffix if suffix.startswith("[") or not prefix or not suffix else f"{prefix}.{suffix}"
