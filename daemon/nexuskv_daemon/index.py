"""One tenant's shared index: what clients look up, pin and touch without the daemon.

Owns the index and touch objects and the pin objects of the tenant's sessions, and translates between the store's
entries and the C core's records. Decides nothing: what is published or retired is the store's choice.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nexuskv.contract import Descriptor
from nexuskv.errors import ArenaFull, BadRequest, StartupError
from nexuskv.native import EXISTS, FullError, LayoutError, PinArray, Writer, format_index, index_bytes
from nexuskv_daemon import pins
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.entries import Entry
from nexuskv_daemon.core.publication import Usage
from nexuskv_daemon.pins import PinObject
from nexuskv_daemon.shm import Namespace

log = logging.getLogger(__name__)
INDEX, TOUCH = "index", "touch"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bounds: `entries` pages of one tenant, `pins` pages that one session holds at once, `segments` of one tenant."""

    entries: int
    pins: int
    segments: int


@dataclass(frozen=True, slots=True)
class Era:
    """The daemon that makes or takes over objects."""

    instance: str
    boot_epoch: int


Heard = Callable[[list[Entry], bool], None]
"""Hears of entries that became readable (True) or went (False)."""

Announce = Callable[[Arena, Descriptor], None]
"""Notes a descriptor, and with it perhaps a new arena, where a daemon that takes over will find it."""


class TenantIndex:
    """The publication of one tenant: `number` names its objects."""

    def __init__(self, namespace: Namespace, number: int, era: Era, sizes: Sizes, announce: Announce) -> None:
        """Opens objects that are there. Raises LayoutError for those of another release."""
        self.number = number
        self._announce = announce
        self._namespace = namespace
        self._era = era
        self._sizes = sizes
        self.heard: Heard | None = None
        self.sessions: dict[int, PinObject] = {}
        self._orphans: list[PinObject] = []
        self._gone: list[int] = []
        self._past = 0, 0, 0
        with contextlib.ExitStack() as undo:
            self._index = namespace.open(INDEX, number, writable=True)
            undo.callback(os.close, self._index)
            self._touch = namespace.open(TOUCH, number, writable=True)
            undo.callback(os.close, self._touch)
            self.writer = Writer(self._index, self._touch)
            self._reader = namespace.open(INDEX, number, writable=False)
            undo.pop_all()

    # -- what the store calls ------------------------------------------------------------------------------------

    def reserve(self, arena: Arena, entries: list[Entry], owner: int) -> bool:
        buckets = _reserve(self.writer, arena, entries, owner)
        refused = min(buckets, default=0)
        if refused >= 0:
            for entry, bucket in zip(entries, buckets, strict=True):
                entry.bucket = bucket
            return True
        self.writer.abort([bucket for bucket in buckets if bucket >= 0])
        if EXISTS in buckets:
            raise BadRequest("a key of another descriptor: compute keys with the cache that they are for")
        return False

    def commit(self, entries: list[Entry]) -> None:
        _all(self.writer.commit([entry.bucket for entry in entries]), entries)
        if self.heard is not None:
            self.heard(entries, True)

    def abort(self, entries: list[Entry]) -> None:
        _all(self.writer.abort([entry.bucket for entry in entries]), entries)

    def tie(self, entries: list[Entry], word: int) -> None:
        _all(self.writer.tie([entry.bucket for entry in entries], word), entries)

    def retire(self, entries: list[Entry]) -> None:
        _all(self.writer.retire([entry.bucket for entry in entries]), entries)
        if self.heard is not None:
            self.heard(entries, False)

    def revive(self, entries: list[Entry]) -> None:
        _all(self.writer.revive([entry.bucket for entry in entries]), entries)

    def pinned(self) -> set[int]:
        return {bucket for array in self._arrays() for bucket in array.buckets()}

    def free(self, entries: list[Entry]) -> list[Entry]:
        freed = set(self.writer.reclaim([entry.bucket for entry in entries], self._arrays()))
        return [entry for entry in entries if entry.bucket in freed]

    def _arrays(self) -> list[PinArray]:
        """Everybody's pins, as far as their clients still live."""
        if self._orphans:
            self._sweep()
        return [each.array for each in (*self.sessions.values(), *self._orphans)]

    def usage(self) -> Usage:
        each = [pins.array for pins in (*self.sessions.values(), *self._orphans)]
        hits, misses, full = (sum(count) for count in zip(self._past, *(a.counts for a in each), strict=True))
        return Usage(
            hits,
            misses,
            full,
            sum(array.held for array in each),
            self.writer.occupied,
            self.writer.max_entries,
        )

    def used(self) -> Iterator[tuple[int, bytes]]:
        for bucket in self.writer.touched():
            key, _, segment, *_ = self.writer.read(bucket)
            yield segment, key

    def announce(self, arena: Arena, descriptor: Descriptor) -> None:
        self._announce(arena, descriptor)

    def admits(self, segment: int) -> bool:
        # Tried, because only the C core knows which numbers share a row.
        try:
            self.writer.add_segment(segment, 0, 1, 64, 64, 64, bytes(32))
        except FullError:
            return False
        self.writer.remove_segment(segment)
        return True

    def add_segment(self, arena: Arena, segment: int, slots: int, nbytes: int) -> None:
        digest = arena.descriptor.digest
        try:
            self.writer.add_segment(
                segment, arena.number, slots, arena.slot_bytes, arena.page_bytes, nbytes, digest
            )
        except FullError as error:
            raise ArenaFull(
                f"the segment directory is full: give nexuskvd a larger --segment-bytes ({error})"
            ) from error

    def remove_segment(self, segment: int) -> None:
        self.writer.remove_segment(segment)

    def attach(self, session: int) -> None:
        self.sessions[session] = pins.make(self._namespace, session, self._sizes.pins, self.writer.index_id)

    def detach(self, session: int) -> None:
        ended = self.sessions.pop(session, None)
        if ended is not None:
            ended.hand_over()
            self._orphans.append(ended)
            self._sweep()

    # -- what the shells call ------------------------------------------------------------------------------------

    def descriptors(self, session: int) -> list[int]:
        """Index (read-only), touch and pin object, in the order of the reply that carries them."""
        client = self.sessions[session].client
        assert client is not None
        return [self._reader, self._touch, client]

    def handed_over(self, session: int) -> None:
        """The session's descriptors are sent."""
        self.sessions[session].hand_over()

    def adopt(self, orphan: PinObject) -> None:
        """A pin object of a session that an earlier daemon served."""
        self._orphans.append(orphan)

    def recover(self) -> None:
        """After a daemon died: drops what is torn. Segments that are lost were removed before."""
        live, retiring, writing, torn, _ = self.writer.recover()
        self.writer.set_epoch(self._era.boot_epoch)
        log.info(
            "index %d: %d pages, %d retiring, %d being written, %d torn",
            self.number,
            live,
            retiring,
            writing,
            torn,
        )

    def gone(self) -> list[int]:
        """Sessions without a connection whose clients went since the last call."""
        self._sweep()
        gone, self._gone = self._gone, []
        return gone

    @property
    def waiting(self) -> bool:
        """Whether `gone` has, or may come to have, something to say."""
        return bool(self._orphans or self._gone)

    @property
    def orphans(self) -> set[int]:
        """Sessions without a connection whose clients still lived when last looked at."""
        return {each.session for each in self._orphans}

    def _sweep(self) -> None:
        for each in [each for each in self._orphans if not each.held]:
            self._orphans.remove(each)
            self._gone.append(each.session)
            past, theirs = self._past, each.array.counts
            self._past = past[0] + theirs[0], past[1] + theirs[1], past[2] + theirs[2]
            each.close()

    def close(self, *, keep: bool) -> None:
        """Lets go of everything; without `keep` clients are told to look elsewhere, and the objects are removed."""
        if not keep:
            self.writer.set_moved()
        for each in (*self.sessions.values(), *self._orphans):
            each.close(keep=keep)
        for descriptor in (self._index, self._touch, self._reader):
            os.close(descriptor)
        if not keep:
            self._namespace.remove(INDEX, self.number)
            self._namespace.remove(TOUCH, self.number)


def create(
    namespace: Namespace, number: int, tenant: str, era: Era, sizes: Sizes, announce: Announce
) -> TenantIndex:
    """Makes the objects of a tenant. Raises ArenaFull."""
    index_size, touch_size = index_bytes(sizes.entries, sizes.segments)
    with contextlib.ExitStack() as undo:
        for kind, nbytes in ((INDEX, index_size), (TOUCH, touch_size)):
            descriptor = namespace.create(kind, number, nbytes)
            undo.callback(namespace.remove, kind, number)
            if kind == INDEX:
                format_index(
                    descriptor, max_entries=sizes.entries, directory_capacity=sizes.segments,
                    boot_epoch=era.boot_epoch, index_id=secrets.randbits(62) + 1,
                    instance=era.instance[:63], tenant=tenant[:63],
                )  # fmt: skip
            os.close(descriptor)
        made = TenantIndex(namespace, number, era, sizes, announce)
        undo.pop_all()
    return made


def take_over(
    namespace: Namespace, number: int, tenant: str, era: Era, sizes: Sizes, announce: Announce
) -> TenantIndex:
    """Opens the objects of an earlier daemon; `recover` cleans them. Raises StartupError with what to do."""
    try:
        _mend_touch(namespace, number)
        found = TenantIndex(namespace, number, era, sizes, announce)
    except (LayoutError, ArenaFull, OSError) as error:
        raise _useless(str(error)) from error
    if found.writer.moved or (found.writer.instance, found.writer.tenant) != (era.instance[:63], tenant[:63]):
        raise _useless("it is another tenant's, or given up")
    return found


def _mend_touch(namespace: Namespace, number: int) -> None:
    """Gives the touch object its length again: its clients can cut it off, and it holds nothing but hints."""
    with contextlib.ExitStack() as stack:
        index = namespace.open(INDEX, number, writable=True)
        stack.callback(os.close, index)
        _, nbytes = index_bytes(Writer(index, -1).max_entries, 1)
        touch = namespace.open(TOUCH, number, writable=True)
        stack.callback(os.close, touch)
        if os.fstat(touch).st_size != nbytes:
            log.warning("the hints in touch object %d are lost: it was cut off", number)
            os.ftruncate(touch, nbytes)
            os.posix_fallocate(touch, 0, nbytes)
    namespace.expect(TOUCH, number, nbytes)


def _useless(why: str) -> StartupError:
    return StartupError(
        f"the shared index left by an earlier daemon cannot be taken over ({why}): start the release that made it once "
        "more and stop it, or start with --fresh, which drops what is cached"
    )


def give_up(namespace: Namespace, number: int) -> None:
    """Tells the clients of an index that is to be removed to look elsewhere, if it can be read."""
    with contextlib.suppress(LayoutError, ArenaFull, StartupError, OSError), contextlib.ExitStack() as stack:
        descriptor = namespace.open(INDEX, number, writable=True)
        stack.callback(os.close, descriptor)
        Writer(descriptor, -1).set_moved()


def _reserve(writer: Writer, arena: Arena, entries: list[Entry], owner: int) -> list[int]:
    """In columns, because it runs for every page that is written."""
    keys = [entry.key for entry in entries]
    parents = [b"" if entry.parent is None else entry.parent.key for entry in entries]
    handles = [entry.handle for entry in entries]
    full, partial = arena.descriptor.page_tokens, arena.partial
    tokens = [partial.get(key, full) for key in keys] if partial else [full] * len(keys)
    return writer.reserve(keys, parents, handles, tokens, arena.slot_bytes, arena.page_bytes, owner)


def _all(done: int, entries: list[Entry]) -> None:
    # The daemon alone writes the index: a step that some entry did not take is a bug, not a situation.
    assert done == len(entries), f"the shared index took {done} of {len(entries)} steps"
