"""Which GID of a device a connection should use: the table, as sysfs tells it, and how good each entry is.

Owns the preference. Knows nothing of queue pairs: that an entry really leads to the peer is proved by whoever connects.
"""

import contextlib
from collections.abc import Iterable
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple

DEVICES = Path("/sys/class/infiniband")
ROCE_V2 = "RoCE v2"


class Entry(NamedTuple):
    """A row of a port's GID table."""

    row: int
    gid: IPv6Address
    kind: str

    @property
    def ipv4(self) -> str | None:
        """The IPv4 address that it carries, if it does."""
        mapped = self.gid.ipv4_mapped
        return str(mapped) if mapped else None

    @property
    def family(self) -> tuple[str, bool]:
        """Both ends of a connection must be of the same one."""
        return self.kind, self.gid.ipv4_mapped is not None


def devices() -> list[str]:
    """Names of the RDMA devices of this host."""
    return sorted(each.name for each in DEVICES.iterdir()) if DEVICES.exists() else []


def table(device: str, port: int = 1, root: Path = DEVICES) -> list[Entry]:
    """The entries that are in use."""
    folder = root / device / "ports" / str(port)
    found = []
    for path in sorted((folder / "gids").iterdir(), key=lambda each: int(each.name)):
        with contextlib.suppress(OSError):  # the kind of an empty row cannot be read
            kind = (folder / "gid_attrs" / "types" / path.name).read_text().strip()
            gid = IPv6Address(path.read_text().strip())
            if int(gid):
                found.append(Entry(int(path.name), gid, kind))
    return found


def ranked(entries: Iterable[Entry], address: str) -> list[Entry]:
    """The best first: RoCE v2 before v1, with an IPv4 address before without, with the host's own `address` first."""
    return sorted(entries, key=lambda entry: (*_score(entry, address), -entry.row), reverse=True)


def _score(entry: Entry, address: str) -> tuple[bool, bool, bool, bool]:
    routed = not entry.gid.is_link_local
    return entry.kind == ROCE_V2, entry.ipv4 == address, entry.ipv4 is not None, routed
