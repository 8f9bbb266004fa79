"""What the daemon knows of one page, and the legal steps of its life.

    ABSENT --reserve--> WRITING --commit--> COMMITTED --evict--> RETIRING --last pin gone--> ABSENT
                        WRITING --abort, or its connection died--> ABSENT

COMMITTED -> ABSENT directly is the eviction of a page that nobody pins. An entry stands in exactly one table of its
arena, the one of its state; an ABSENT one in none. Owns the record alone: rules that span entries live in the store,
those of pages that make a boundary of a group in `ties.py`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from nexuskv_daemon.core.arena import Arena
    from nexuskv_daemon.core.ties import Tie


class State(enum.Enum):
    """Where an entry stands."""

    ABSENT = "absent"
    WRITING = "writing"
    COMMITTED = "committed"
    RETIRING = "retiring"


ABSENT, WRITING, COMMITTED, RETIRING = State.ABSENT, State.WRITING, State.COMMITTED, State.RETIRING


class Entry(msgspec.Struct, eq=False, gc=False):
    """One page; a million of them have to be small, and quickly made.

    `parent` is the page before this one in its chain (None at the root, and in arenas without prefix closure),
    `children` counts the entries whose parent this is, `pins` the hits that hold it, `tick` orders last uses,
    `queued` says that the eviction policy knows it, `bucket` is its place in the shared index, `tie` the boundary of
    a group that it belongs to (None outside of groups), `checksum` is XXH3-64 of its bytes once another host asked for
    them, 0 before. No collector looks at these: references go from child to parent only, and who dissolves a tie takes
    it from its entries.
    """

    arena: Arena
    key: bytes
    handle: int
    parent: Entry | None
    tick: int
    state: State = WRITING
    bucket: int = -1
    children: int = 0
    pins: int = 0
    queued: bool = False
    tie: Tie | None = None
    checksum: int = 0

    def __lt__(self, other: Entry) -> bool:
        """Any stable order will do: it only breaks ties of equal ticks."""
        return self.handle < other.handle

    @property
    def evictable(self) -> bool:
        """A leaf that nobody holds; one of a boundary, when all of the boundary may go."""
        if self.tie is not None:
            return self.tie.evictable
        return self.state is COMMITTED and not self.children and not self.pins

    @property
    def together(self) -> tuple[Entry, ...]:
        """What goes when this one is evicted, itself included."""
        return (self,) if self.tie is None else self.tie.entries

    @property
    def faces(self) -> tuple[Entry, ...]:
        """What stands in the eviction queues for all that goes together: one entry in each arena."""
        return (self,) if self.tie is None else self.tie.faces

    @property
    def used(self) -> int:
        """Tick of the last use of what goes together."""
        return self.tick if self.tie is None else max(face.tick for face in self.tie.faces)
