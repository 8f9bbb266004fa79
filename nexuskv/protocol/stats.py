"""The figures that the daemon gives of an arena and of a tenant.

Owns their names and units. Which of them a session may see, and the message that carries them, is another's affair.
"""

import msgspec


class ArenaStats(msgspec.Struct, frozen=True):
    """Figures of one arena; counters run since the daemon's start, in pages unless named otherwise."""

    descriptor_id: str
    tenant: str
    segments: int
    bytes: int
    page_bytes: int
    slot_bytes: int
    slots: int
    free: int
    resident: int
    writing: int
    retiring: int
    committed: int
    aborted: int
    evicted: int
    branches: int
    """That somebody holds or that are published, and have a page; `branch_tips` are the pages that they end at."""
    branch_tips: int
    copied: int
    """Partly filled pages that an append had to copy."""


class TenantStats(msgspec.Struct, frozen=True):
    """Figures of one tenant, in pages. Hits, misses and pins are its clients' word: the daemon is not asked for them.

    `entries` of at most `index_entries` stand in the shared index; `pinned` counts a page once for each hit on it;
    `pins_full` counts hits that a client could not have because it held all the pages that --pins allows.
    """

    tenant: str
    hits: int
    misses: int
    pinned: int
    entries: int
    index_entries: int
    pins_full: int
