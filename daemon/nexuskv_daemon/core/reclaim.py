"""Emptying a whole segment, so that its memory can serve another arena.

Owns which segment of an arena is cheapest to empty. Pages have children in other segments, so emptying one evicts
everything below its pages too; a segment that holds a page in use, or one with a used page below it, is left alone.
One pass over the arena's entries, made once for at least a whole segment of memory.
"""

from collections import defaultdict

from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.slots import segment_of


def emptiable(arena: Arena) -> list[int]:
    """Segments that hold no page in use and none above one, the one whose last use is longest ago first."""
    blocked = _blocked(arena)
    last_use = dict.fromkeys((number for number in arena.pool.segments if number not in blocked), 0)
    for entry in arena.index.values():
        number = segment_of(entry.handle)
        if number in last_use and entry.tick > last_use[number]:
            last_use[number] = entry.tick
    return sorted(last_use, key=last_use.__getitem__)


def empty(arena: Arena, segment: int) -> bool:
    """Evicts every entry of `segment` and all that hang below, leaves first. False when somebody reads one of them."""
    inside = [entry for entry in arena.index.values() if segment_of(entry.handle) == segment]
    retire_all(arena, below(arena, inside))
    return not any(segment_of(entry.handle) == segment for entry in arena.retiring)


def below(arena: Arena, heads: list[Entry]) -> list[Entry]:
    """`heads` and every committed entry that hangs below one of them."""
    children = _children(arena)
    found = list(heads)
    seen = set(found)
    for entry in found:  # grows while it is walked: children come after their parents
        for child in children.get(entry, ()):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def everything(arena: Arena) -> list[Entry]:
    """Every committed entry but those that a page being written, or a branch, needs."""
    kept: set[Entry] = set()
    for last in (*(writing.parent for writing in arena.writing.values()), *arena.held):
        entry: Entry | None = last
        while entry is not None and entry not in kept:
            kept.add(entry)
            entry = entry.parent
    return [entry for entry in arena.index.values() if entry not in kept]


def retire_all(arena: Arena, doomed: list[Entry]) -> int:
    """Retires a set of entries that is closed under "child of", each after its children. Returns slots freed."""
    waiting = set(doomed)
    ready = [entry for entry in doomed if not entry.children]
    while ready:
        entry = ready.pop()
        parent = entry.parent
        waiting.discard(entry)
        arena.detach(entry)
        if parent is not None and parent in waiting and not parent.children:
            ready.append(parent)
    assert not waiting, "an entry to retire has children that stay"
    return arena.settle(doomed)


def _blocked(arena: Arena) -> set[int]:
    blocked: set[int] = set()
    seen: set[Entry] = set()
    pinned = arena.publication.pinned()
    read = (entry for entry in arena.index.values() if entry.pins or entry.bucket in pinned)
    for held in (*arena.writing.values(), *arena.retiring, *read):
        entry: Entry | None = held
        while entry is not None and entry not in seen:
            seen.add(entry)
            blocked.add(segment_of(entry.handle))
            entry = entry.parent
    return blocked


def _children(arena: Arena) -> dict[Entry, list[Entry]]:
    children: dict[Entry, list[Entry]] = defaultdict(list)
    for entry in arena.index.values():
        if entry.parent is not None:
            children[entry.parent].append(entry)
    return children
