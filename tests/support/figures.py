"""What a daemon says of the one arena that a test has."""

import nexuskv
from nexuskv.protocol.stats import ArenaStats


def figures(client: nexuskv.Client) -> ArenaStats:
    """Of the only arena that the client sees."""
    (arena,) = client.stats().arenas
    return arena


def writing(client: nexuskv.Client) -> int:
    """How many pages of all arenas are being written, and hold their slots."""
    return sum(arena.writing for arena in client.stats().arenas)
