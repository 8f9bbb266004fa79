"""Sizes in bytes as people write and read them: "4GiB" to 4294967296 and back.

Owns the one spelling that the command lines and the messages of errors share. Refuses to know what a size is
for and what would be too much: whoever asked compares it.
"""

import re
from fractions import Fraction

from nexuskv.errors import LocalError

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# A lone letter means the binary unit, as it does to systemd and to container runtimes.
_FACTORS = {"": 1} | {
    spelling: factor for unit, factor in _UNITS.items() for spelling in (unit.lower(), unit[0].lower())
}
_SIZE = re.compile(r"(?P<number>[0-9]{1,20}(?:\.[0-9]{1,20})?) ?(?P<unit>[A-Za-z]*)", re.ASCII)
_LARGEST = (1 << 63) - 1  # what off_t, and so a shared-memory object, can hold


def parse_size(text: str) -> int:
    """Bytes of "4GiB", "1.5 GiB", "512M" or "4096"; a fraction of a byte is dropped.

    Raises LocalError for anything else, and for what does not fit a signed 64-bit size.
    """
    found = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(found["unit"].lower()) if found else None
    if found is None or factor is None:
        raise LocalError(
            f"{text!r} is not a size: write a number of bytes, or a number with KiB, MiB, GiB or TiB "
            "(or K, M, G, T), such as 4GiB"
        )
    nbytes = int(Fraction(found["number"]) * factor)
    if nbytes > _LARGEST:
        raise LocalError(f"{text!r} is more than a 64-bit size can hold; ask for less than 8388608TiB")
    return nbytes


def format_size(nbytes: int) -> str:
    """`nbytes` in the largest unit that leaves at least 1, with at most two decimals: "1.5 GiB", "64 MiB"."""
    unit = max((u for u, n in _UNITS.items() if abs(nbytes) >= n), key=_UNITS.__getitem__, default="B")
    return f"{f'{nbytes / _UNITS[unit]:.2f}'.rstrip('0').rstrip('.')} {unit}"
