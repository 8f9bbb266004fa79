"""Where entries are made known to readers that never ask the daemon.

Owns the interface between the store and one tenant's shared index. It is a port, not an effect: whether a slot is free
again depends on what readers pinned meanwhile, and the store must know before it hands the slot out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nexuskv_daemon.core.arena import Arena
    from nexuskv_daemon.core.entries import Entry


class Publication(Protocol):
    """One tenant's readers. Every call takes a batch, in the order parents first."""

    def reserve(self, arena: Arena, entries: list[Entry], owner: int) -> bool:
        """These are being written by session `owner`. False, and nothing noted, when there is no place for them."""

    def commit(self, arena: Arena, entries: list[Entry]) -> None:
        """Readers find these from now on."""

    def abort(self, arena: Arena, entries: list[Entry]) -> None:
        """These were reserved, and will not come."""

    def retire(self, arena: Arena, entries: list[Entry]) -> None:
        """Nobody finds these any more; who pinned them goes on reading."""

    def free(self, arena: Arena, entries: list[Entry]) -> list[Entry]:
        """Those of retired entries that no reader pins: their slots may be written again."""

    def used(self) -> Iterable[tuple[int, bytes]]:
        """Arena number and key of what readers used since the last call."""
