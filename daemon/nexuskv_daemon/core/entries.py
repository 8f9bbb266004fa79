"""What the daemon knows of one page, and the legal steps of its life.

    ABSENT --reserve--> WRITING --commit--> COMMITTED --evict--> RETIRING --last pin gone--> ABSENT
                        WRITING --abort, or its connection died--> ABSENT

COMMITTED -> ABSENT directly is the eviction of a page that nobody pins. An entry stands in exactly one table of its
arena, the one of its state; an ABSENT one in none. Owns the record alone: rules that span entries live in the store.
"""

from __future__ import annotations

import enum

import msgspec


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
    `queued` says that the eviction policy knows it, `bucket` is its place in the shared index. References go from
    child to parent only, so there is no cycle for a collector to find.
    """

    key: bytes
    handle: int
    parent: Entry | None
    tick: int
    state: State = WRITING
    bucket: int = -1
    children: int = 0
    pins: int = 0
    queued: bool = False

    def __lt__(self, other: Entry) -> bool:
        """Any stable order will do: it only breaks ties of equal ticks."""
        return self.handle < other.handle

    @property
    def evictable(self) -> bool:
        """A leaf that nobody holds."""
        return self.state is COMMITTED and not self.children and not self.pins
