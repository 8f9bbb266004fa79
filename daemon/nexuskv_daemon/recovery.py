"""Starting where an earlier daemon of the same instance ended, however it ended.

Owns the order of a takeover and what is removed because nobody can use it. The kernel keeps the objects, the shared
index says what is in them: nothing that was committed is lost.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from nexuskv import contract
from nexuskv.errors import ArenaFull, DescriptorError, StartupError
from nexuskv.native import LayoutError
from nexuskv_daemon import branch_log, index, journal, pins
from nexuskv_daemon.arenas import DATA, SegmentObjects
from nexuskv_daemon.core.branch import BranchLine
from nexuskv_daemon.core.memory import SegmentRecord
from nexuskv_daemon.core.restore import Record, Restored, restore
from nexuskv_daemon.core.store import Store
from nexuskv_daemon.index import INDEX, TOUCH, TenantIndex
from nexuskv_daemon.journal import ArenaLine, Journal
from nexuskv_daemon.pins import PINS
from nexuskv_daemon.publications import Publications
from nexuskv_daemon.shm import Namespace

log = logging.getLogger(__name__)
CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Known:
    """What an earlier daemon wrote down: its journal, and the branches that were published."""

    journal: Journal
    branches: list[BranchLine]


def known(namespace: Namespace) -> Known | None:
    """What there is to take over, None if there is nothing. Raises StartupError with what to do."""
    found = journal.read(namespace.journal)
    return None if found is None else Known(found, branch_log.read(namespace.branches))


def discard(namespace: Namespace) -> None:
    """Removes every object of this instance. The caller holds its lock, so none belongs to a live daemon."""
    journal.remove(namespace.journal)
    branch_log.remove(namespace.branches)
    for number in namespace.there(INDEX):
        index.give_up(namespace, number)
    for kind in (DATA, INDEX, TOUCH, PINS):
        for number in namespace.there(kind):
            namespace.remove(kind, number)


def _discard_unknown(namespace: Namespace, known: Journal) -> None:
    """Removes indexes that a daemon was making when it died: no journal names them."""
    for kind in (INDEX, TOUCH):
        for number in set(namespace.there(kind)) - set(known.tenants.values()):
            log.warning("removing %s %d, which its daemon did not finish", kind, number)
            namespace.remove(kind, number)


def take_over(
    namespace: Namespace,
    known: Known,
    store: Store,
    objects: SegmentObjects,
    publications: Publications,
) -> Restored:
    """Fills the store from the objects of an earlier daemon. Raises StartupError with what to do."""
    for line in known.journal.arenas:
        store.restore_arena(line.number, line.tenant, _descriptor(line))
    lost = [
        (tenant, _take_segments(namespace, tenant, store, objects))
        for tenant in publications.tenants.values()
    ]
    store.memory.resume(known.journal.segments)
    for tenant, segments in lost:  # up to here nothing was changed, so a refusal leaves everything as it was
        _recover(tenant, segments)
    _discard_unknown(namespace, known.journal)
    _discard_segments(namespace, store)
    _take_pins(namespace, publications)
    records = (record for tenant in publications.tenants.values() for record in _records(tenant))
    restored = restore(store.arenas, store.memory, records)
    store.resume(restored.tick, restored.tie)
    for number in store.branches.restore(known.branches, store.arenas):
        log.warning("branch %d is lost: its pages are gone", number)
    store.fit()  # after the branches have taken hold of their pages
    return restored


def _descriptor(line: ArenaLine) -> contract.Descriptor:
    try:
        return contract.decode(line.descriptor)
    except DescriptorError as error:
        raise StartupError(
            f"arena {line.number} has a descriptor of another release ({error}): start that release once more and stop "
            "it, or start with --fresh, which drops what is cached"
        ) from error


def next_session(namespace: Namespace, restored: Restored) -> int:
    """A session number that no object or entry of the earlier daemon bears."""
    return max([0, *namespace.there(PINS), *restored.writing]) + 1


def _take_segments(
    namespace: Namespace, tenant: TenantIndex, store: Store, objects: SegmentObjects
) -> list[int]:
    """Opens the segments of a tenant. Returns those that are lost."""
    there = set(namespace.there(DATA))
    lost: list[int] = []
    for segment, arena, slots, slot_bytes, _, nbytes, digest in tenant.writer.segments():
        known = store.arenas.get(arena)
        fits = known is not None and known.slot_bytes == slot_bytes and known.descriptor.digest == digest
        if segment not in there or known is None or not fits or not _open(objects, segment, nbytes):
            lost.append(segment)
            continue
        store.memory.restore(SegmentRecord(segment, known, slots, nbytes))
    return lost


def _recover(tenant: TenantIndex, lost: list[int]) -> None:
    for segment in lost:
        log.warning("segment %d is lost, and the pages in it", segment)
        tenant.writer.remove_segment(segment)
    tenant.recover()


def _open(objects: SegmentObjects, segment: int, nbytes: int) -> bool:
    """Opens a segment unless it is useless. Raises StartupError."""
    try:
        return objects.take_over(segment, nbytes)
    except ArenaFull as error:
        raise StartupError(
            f"{error}: make that possible, or start with --fresh, which drops what is cached"
        ) from error


def _discard_segments(namespace: Namespace, store: Store) -> None:
    """Segments that were being made when the daemon died: no page is in them."""
    for number in set(namespace.there(DATA)) - set(store.memory.ready):
        namespace.remove(DATA, number)


def _take_pins(namespace: Namespace, publications: Publications) -> None:
    """Pin objects count as long as their clients live, and only for the index that they name."""
    owners = {tenant.writer.index_id: tenant for tenant in publications.tenants.values()}
    for number in namespace.there(PINS):
        try:
            found = pins.take_over(namespace, number)
        except (ArenaFull, LayoutError, StartupError, OSError) as error:
            log.warning("pins of session %d are lost: %s", number, error)
            namespace.remove(PINS, number)
            continue
        owner = owners.get(found.index_id)
        if owner is None or not found.held:
            found.close()
        else:
            owner.adopt(found)


def _records(tenant: TenantIndex) -> Iterator[Record]:
    cursor = 0
    while True:
        cursor, records = tenant.writer.entries(cursor, CHUNK)
        yield from records
        if not cursor:
            return
