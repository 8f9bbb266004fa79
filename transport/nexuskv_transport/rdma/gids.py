"""Which GID of a device a connection should use: how good each row of the device's table is.

Owns the preference. Pure: the table is read by `verbs`, and that a row really leads to the peer is proved by whoever
connects.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import NamedTuple

INFINIBAND, ROCE_V1, ROCE_V2 = 0, 1, 2
"""Kinds of rows, by the numbers of the verbs ABI."""


class Entry(NamedTuple):
    """A row of a port's GID table that is in use."""

    row: int
    gid: IPv6Address
    kind: int

    @property
    def ipv4(self) -> str | None:
        """The IPv4 address that it carries, if it does."""
        mapped = self.gid.ipv4_mapped
        return str(mapped) if mapped else None

    def matches(self, kind: int, gid: str) -> bool:
        """Whether a connection may have this one at one end and that one at the other."""
        return self.kind == kind and (self.ipv4 is None) == (IPv6Address(gid).ipv4_mapped is None)


def ranked(entries: Iterable[Entry], address: str) -> list[Entry]:
    """The best first: RoCE v2 before v1, with an IPv4 address before without, with the host's own `address` first."""
    return sorted(entries, key=lambda entry: (*_score(entry, address), -entry.row), reverse=True)


def _score(entry: Entry, address: str) -> tuple[bool, bool, bool, bool]:
    routed = not entry.gid.is_link_local
    return entry.kind == ROCE_V2, entry.ipv4 == address, entry.ipv4 is not None, routed
