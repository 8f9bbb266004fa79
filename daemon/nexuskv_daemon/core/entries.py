"""What the daemon knows of one page, and the legal steps of its life.

    ABSENT --reserve--> WRITING --commit--> COMMITTED --evict--> RETIRING --last pin gone--> ABSENT
                        WRITING --abort, or its connection died--> ABSENT

COMMITTED -> ABSENT directly is the eviction of a page that nobody pins. An entry stands in exactly one table of its
arena, the one of its state; an ABSENT one in none. Owns the record alone: rules that span entries live in the store.
"""

from __future__ import annotations

import enum


class State(enum.Enum):
    """Where an entry stands."""

    ABSENT = "absent"
    WRITING = "writing"
    COMMITTED = "committed"
    RETIRING = "retiring"


ABSENT, WRITING, COMMITTED, RETIRING = State.ABSENT, State.WRITING, State.COMMITTED, State.RETIRING


class Entry:
    """One page. Slots keep a million of them small: about 350 bytes each with key and index.

    `parent` is the page before this one in its chain (None at the root, and in arenas without prefix closure),
    `children` counts the entries whose parent this is, `pins` the hits that hold it, `tick` orders last uses,
    `queued` says that the eviction policy knows it, `bucket` is its place in the shared index, `checksum` is XXH3-64 of
    its bytes once another host asked for them, 0 before.
    """

    __slots__ = (
        "bucket",
        "checksum",
        "children",
        "handle",
        "key",
        "parent",
        "pins",
        "queued",
        "state",
        "tick",
    )

    def __init__(self, key: bytes, handle: int, parent: Entry | None, tick: int) -> None:
        self.key = key
        self.handle = handle
        self.parent = parent
        self.tick = tick
        self.bucket = -1
        self.checksum = 0
        self.children = 0
        self.pins = 0
        self.queued = False
        self.state = WRITING

    def __lt__(self, other: Entry) -> bool:
        """Any stable order will do: it only breaks ties of equal ticks."""
        return self.handle < other.handle

    @property
    def evictable(self) -> bool:
        """A leaf that nobody holds."""
        return self.state is COMMITTED and not self.children and not self.pins
