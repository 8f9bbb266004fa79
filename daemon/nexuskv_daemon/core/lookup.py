"""What is known of a key, present or absent and why, and how far a chain is resident.

Owns the answer to "why did this lookup miss?". Reads the store, changes nothing in it: a lookup neither pins a page nor
makes it younger, else asking would keep pages alive that nobody uses.
"""

from bisect import bisect_left

from nexuskv.contract import usable
from nexuskv.protocol.messages import BEING_WRITTEN, EVICTED, NEVER_SEEN, OTHER_DESCRIPTOR, PRESENT
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.store import Store


def states(store: Store, arena: Arena, keys: list[bytes]) -> tuple[bytes, dict[str, list[int]]]:
    """One state a key, and by id of each other descriptor of the tenant, the places of the keys that it owns."""
    index = arena.index
    if all(map(index.__contains__, keys)):
        return bytes(len(keys)), {}
    found = bytearray(len(keys))
    others: dict[str, list[int]] = {}
    for position, key in enumerate(keys):
        if key not in index:
            found[position] = _absence(store, arena, key, position, others)
    return bytes(found), others


def boundary(arena: Arena, keys: list[bytes]) -> range:
    """Pages of a chain that make its longest restorable boundary.

    Where what is resident is closed under "prefix of", bisection finds it: a few probes, however long the chain is.
    """
    if arena.chained:
        return range(bisect_left(keys, True, key=lambda key: key not in arena.index))
    present = [key in arena.index for key in keys]
    return usable(arena.descriptor.reuse, present, arena.descriptor.page_tokens)


def _absence(store: Store, arena: Arena, key: bytes, position: int, others: dict[str, list[int]]) -> int:
    if key in arena.writing:
        return BEING_WRITTEN
    if key in arena.ghosts:
        return EVICTED
    if (owner := store.owner(arena, key)) is not None:
        others.setdefault(owner.descriptor.descriptor_id, []).append(position)
        return OTHER_DESCRIPTOR
    return NEVER_SEEN


assert PRESENT == 0  # `states` answers zeroed bytes where everything is present
