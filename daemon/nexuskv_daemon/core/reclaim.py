"""Evicting many pages at once: a whole segment, so that its memory can serve another arena, or all there are.

Owns what must go with a page: everything below it in its chain, and what is tied to it (`ties.py`), which may lie in
other arenas. So emptying a segment takes pages out of others too; a segment that holds a page in use, or one that would
take a used page with it, is left alone. One pass over the arenas' entries, made once for at least a whole segment of
memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from nexuskv_daemon.core.arena import Arena, by_arena
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.slots import segment_of


def emptiable(arena: Arena) -> list[int]:
    """Segments from which nothing in use would have to go, the one whose last use is longest ago first."""
    blocked = _blocked(arena)
    last_use = dict.fromkeys((number for number in arena.pool.segments if number not in blocked), 0)
    for entry in arena.index.values():
        number = segment_of(entry.handle)
        if number in last_use and entry.tick > last_use[number]:
            last_use[number] = entry.tick
    return sorted(last_use, key=last_use.__getitem__)


def empty(arena: Arena, segment: int) -> bool:
    """Evicts every entry of `segment` and all that goes with them. False when somebody reads one of them."""
    inside = [entry for entry in arena.index.values() if segment_of(entry.handle) == segment]
    retire_all(below(inside))
    return not any(segment_of(entry.handle) == segment for entry in arena.retiring)


def below(heads: Sequence[Entry]) -> list[Entry]:
    """`heads`, and every committed entry that hangs below one of them or is tied to one; each once."""
    children: dict[Arena, dict[Entry, list[Entry]]] = {}
    found = list(dict.fromkeys(heads))
    seen = set(found)
    for entry in found:  # grows while it is walked
        if entry.arena not in children:
            children[entry.arena] = _children(entry.arena)
        for other in (*children[entry.arena].get(entry, ()), *entry.together):
            if other not in seen:
                seen.add(other)
                found.append(other)
    return found


def everything(arena: Arena) -> list[Entry]:
    """Every committed entry but those that a page being written, or a branch, needs; and what is tied to these."""
    kept = _needed(entry for each in _reached(arena) for entry in (*each.writing.values(), *each.held))
    free = [entry for entry in arena.index.values() if entry not in kept]
    return below(free) if arena.partners else free


def retire_all(doomed: Sequence[Entry]) -> int:
    """Retires entries closed under "child of" and "tied to". Returns slots freed."""
    detach_all(doomed)
    return settle_all(doomed)


def detach_all(doomed: Sequence[Entry]) -> None:
    """Nobody finds these any more; each goes after its children. `settle_all` ends it."""
    if len(doomed) == 1:  # the most frequent case by far
        doomed[0].arena.detach(doomed[0])
        return
    waiting = set(doomed)
    ready = [entry for entry in doomed if not entry.children]
    while ready:
        entry = ready.pop()
        parent = entry.parent
        waiting.discard(entry)
        entry.arena.detach(entry)
        if parent is not None and parent in waiting and not parent.children:
            ready.append(parent)
    assert not waiting, "an entry to retire has children that stay"


def settle_all(detached: Sequence[Entry]) -> int:
    """The slots of detached entries come back unless somebody reads them. Returns how many did."""
    return sum(arena.settle(entries) for arena, entries in by_arena(detached).items())


def _blocked(arena: Arena) -> set[int]:
    pinned = arena.publication.pinned()
    held: list[Entry] = []
    for each in _reached(arena):
        read = (entry for entry in each.index.values() if entry.pins or entry.bucket in pinned)
        held += (*each.writing.values(), *each.retiring, *read)
    return {segment_of(entry.handle) for entry in _needed(held) if entry.arena is arena}


def _needed(held: Iterable[Entry]) -> set[Entry]:
    """`held`, and all that cannot go without one of them."""
    needed: set[Entry] = set()
    for each in held:
        waiting = [each]
        while waiting:
            entry = waiting.pop()
            if entry not in needed:
                needed.add(entry)
                waiting += entry.together
                if entry.parent is not None:
                    waiting.append(entry.parent)
    return needed


def _reached(arena: Arena) -> list[Arena]:
    """`arena`, and every other that its pages may take some of with them."""
    found = [arena]
    for each in found:  # grows while it is walked
        found += (partner for partner in each.partners if partner not in found)
    return found


def _children(arena: Arena) -> dict[Entry, list[Entry]]:
    children: dict[Entry, list[Entry]] = defaultdict(list)
    for entry in arena.index.values():
        if entry.parent is not None:
            children[entry.parent].append(entry)
    return children
