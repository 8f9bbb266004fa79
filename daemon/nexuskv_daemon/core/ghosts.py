"""Keys that were resident once: the answer to "why did this lookup miss?".

Owns a bounded memory of evicted keys, oldest forgotten first. Holds no page and no byte of one.
"""

from collections import OrderedDict
from collections.abc import Iterable

from nexuskv_daemon.core.entries import Entry

REMEMBERED = 65_536


class Ghosts:
    """The last `limit` evicted keys, about 150 bytes each."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()
        self._limit = limit

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def remember(self, entry: Entry) -> None:
        """`entry` was evicted."""
        self._keys[entry.key] = None
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)

    def forget(self, entries: Iterable[Entry]) -> None:
        """These are resident again."""
        if self._keys:
            for entry in entries:
                self._keys.pop(entry.key, None)
