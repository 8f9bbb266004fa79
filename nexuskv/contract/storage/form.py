"""What every storage struct is held to, decoded or built in code: its types, its ids, and no unknown field.

Owns the translation of what msgspec refuses into StorageError, and the form of an id. Knows no rule that needs more
than one field.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec

from nexuskv.contract import faults
from nexuskv.contract.checks import ID, MAX_ID_BYTES
from nexuskv.contract.storage.rules import Rule, refuse
from nexuskv.contract.storage.vocabulary import WORDS
from nexuskv.errors import StorageError

Id = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{ID}$"})]


def check_id(field: str, identifier: str) -> None:
    """Refuse what is not 1-160 bytes of [A-Za-z0-9._:/-]."""
    if bad := re.search(r"[^A-Za-z0-9._:/-]", identifier):
        raise refuse(Rule.BAD_ID, field, f"{bad.group()!r} is forbidden; use [A-Za-z0-9._:/-]")
    if not 1 <= len(identifier) <= MAX_ID_BYTES:
        raise refuse(Rule.BAD_ID, field, f"{len(identifier)} bytes; an id has 1 to {MAX_ID_BYTES}")


def hold_to_types(struct: msgspec.Struct) -> None:
    """As `faults.hold_to_types`, raising StorageError. For `__post_init__`, before any other check."""
    faults.hold_to_types(struct, named)


@contextmanager
def named(field: str = "") -> Iterator[None]:
    """Raise what is refused inside as a StorageError whose field begins with `field`."""
    try:
        yield
    except msgspec.DecodeError as error:
        raise _translate(error, field) from None
    except RecursionError:  # of bytes that open a thousand arrays; whoever sent them must not end the reader
        raise refuse(Rule.MALFORMED, field, "nested far deeper than a declaration is") from None


@contextmanager
def within(place: str) -> Iterator[None]:
    """Puts `place` before the field of a StorageError raised inside."""
    try:
        yield
    except StorageError as error:
        raise _moved(error, place) from None


def _translate(error: msgspec.DecodeError, field: str) -> StorageError:
    if isinstance(
        error.__cause__, StorageError
    ):  # raised by a struct's own checks, which knew the inner field
        return _moved(error.__cause__, faults.join(field, faults.blamed(error)))
    blamed, sentence = faults.explain(error, field, WORDS)
    return refuse(
        Rule.UNKNOWN_FIELD if sentence == faults.UNKNOWN_FIELD else Rule.MALFORMED, blamed, sentence
    )


def _moved(error: StorageError, place: str) -> StorageError:
    message = str(error).removeprefix(f"{error.field}: ")
    return StorageError(message, rule=error.rule, field=faults.join(place, error.field))
