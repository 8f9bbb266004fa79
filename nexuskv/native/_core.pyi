# The shared-memory index: hits without the daemon. Layout and protocol: nexuskv.h and nexuskv.c. The tuples: rows.py.

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, final

import numpy as np
import numpy.typing as npt

from nexuskv.errors import NexusError
from nexuskv.native.rows import Buckets, Entry, Extent, Keys, Page, Record, SegmentRow

ABSENT: Final[int]
BEING_EVICTED: Final[int]
BEING_WRITTEN: Final[int]
PRESENT: Final[int]
WRITING: Final[int]
LIVE: Final[int]
RETIRING: Final[int]
FULL: Final[int]
EXISTS: Final[int]
LAYOUT_VERSION: Final[int]

# The daemon has left this index, or a fork has inherited it: attach anew.
class Moved(NexusError): ...

# All pin words are in use; nothing of the call was pinned.
class PinsFull(NexusError): ...

# Truncated, of another layout version, no such object, or of another index.
class LayoutError(NexusError): ...

# No room in a table that the daemon writes.
class FullError(NexusError): ...

# Sizes of an index object and of its touch object.
def index_bytes(max_entries: int, directory_capacity: int, /) -> tuple[int, int]: ...

# Size of a pin object with so many words.
def pin_bytes(capacity: int, /) -> int: ...

# Formats a zeroed object of at least index_bytes(). index_id: random, not 0.
def format_index(
    fd: int,
    *,
    max_entries: int,
    directory_capacity: int,
    boot_epoch: int,
    index_id: int,
    instance: str,
    tenant: str,
) -> None: ...

# Formats a zeroed object; its size gives the capacity.
def format_pins(fd: int, index_id: int, session: int, /) -> None: ...

# Locks the object for this open file description, wherever it is sent; False if another one holds the lock.
def lock_owner(fd: int, /) -> bool: ...

# Does another open file description than this one hold the object's lock?
def owner_alive(fd: int, /) -> bool: ...

# Sends `request` over a SOCK_SEQPACKET socket and receives the next message into `answer`: its bytes, 0 when the peer
# hung up, and the descriptors that came with it. None when the request could not be sent within the socket's timeout;
# raises OSError, BlockingIOError when no message came within it.
def exchange(fd: int, request: bytes, answer: bytearray, /) -> tuple[int, list[int]] | None: ...

# Receives a message that is there into `answer`: its bytes, 0 when the peer hung up, None when there is none now. Never
# waits. Descriptors that come with it are closed by the kernel. Raises OSError.
def poll(fd: int, answer: bytearray, /) -> int | None: ...

# Copies pages of page_bytes into slots, which begin every slot_bytes of a segment: sources[positions[i]] into the slot
# of memories[i] that the low 32 bits of handles[i] name. All or nothing; without the GIL. Raises BufferError or
# TypeError for a source that is no C-contiguous buffer, ValueError for one of another size, IndexError for a slot or
# source that is not there.
def fill(
    slot_bytes: int,
    page_bytes: int,
    memories: list[npt.NDArray[np.uint8]],
    handles: list[int],
    positions: list[int],
    sources: Sequence[Any] | npt.NDArray[Any],
    /,
) -> None: ...

# One attachment to an index; its calls may come from any thread. Its mapping keeps pin_fd's lock, so all three may be
# closed. Raises LayoutError or OSError.
@final
class Reader:
    def __new__(cls, index_fd: int, touch_fd: int, pin_fd: int) -> Self: ...
    # Boot epoch of the daemon that serves the index now; 0 once it has moved.
    @property
    def epoch(self) -> int: ...
    @property
    def session(self) -> int: ...
    # How many leading keys are resident; pins nothing. Raises Moved.
    def lookup(self, keys: Keys, /) -> int: ...

    # One of ABSENT, BEING_EVICTED, BEING_WRITTEN, PRESENT a key. Raises Moved.
    def status(self, keys: Keys, /) -> bytes: ...

    # The segment of a resident page, or None; pins and touches nothing. Raises Moved.
    def where(self, key: bytes, /) -> int | None: ...

    # Pins the resident leading run, which may be empty. Raises Moved, PinsFull.
    def pin(self, keys: Keys, /) -> Pins: ...
    def segment(self, number: int, /) -> SegmentRow | None: ...

# Pinned pages: never overwritten until released, by release(), the end of a `with`, or the last reference.
@final
class Pins:
    def __len__(self) -> int: ...
    # Raises IndexError; Closed after release().
    def __getitem__(self, position: int, /) -> Page: ...
    @property
    def tokens(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def extents(self) -> list[Extent]: ...
    def segments(self) -> set[int]: ...
    # How many pages there are from the first on whose segment is no key of the dict: 0 = all can be read.
    def unreadable(self, segments: dict[int, Any], /) -> int: ...
    # How many leading pins still hold: all of them, unless somebody scribbled over the pin object.
    def valid(self) -> int: ...

    # Releases all pages but the first so many.
    def truncate(self, keep: int, /) -> None: ...
    def release(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

# The daemon's view of one client's pins; whatever the client writes there, only its own pins suffer.
@final
class PinArray:
    def __new__(cls, fd: int) -> Self: ...
    @property
    def held(self) -> int: ...
    # Buckets that the words name just now, whatever the client wrote there: a hint for choosing what to evict.
    def buckets(self) -> list[int]: ...
    # Hits, misses, refusals for want of a word: the client's word for it.
    @property
    def counts(self) -> tuple[int, int, int]: ...

# The daemon's side of one index. touch_fd may be -1. Raises LayoutError or OSError.
@final
class Writer:
    def __new__(cls, index_fd: int, touch_fd: int) -> Self: ...
    @property
    def index_id(self) -> int: ...
    @property
    def bucket_count(self) -> int: ...
    @property
    def max_entries(self) -> int: ...
    @property
    def boot_epoch(self) -> int: ...
    @property
    def occupied(self) -> int: ...
    @property
    def live(self) -> int: ...
    @property
    def tick(self) -> int: ...
    @property
    def torn_dropped(self) -> int: ...
    @property
    def moved(self) -> bool: ...
    @property
    def release(self) -> str: ...
    @property
    def instance(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    # Writes entries as WRITING. A bucket each, or EXISTS, FULL or another code below 0. A parent may be b"", a handle
    # is segment << 32 | slot.
    def reserve(
        self,
        keys: list[bytes],
        parents: list[bytes],
        handles: list[int],
        tokens: list[int],
        slot_bytes: int,
        length: int,
        owner: int,
        /,
    ) -> list[int]: ...

    # Reserve and commit in one, of any records.
    def publish(self, records: Sequence[Record], /) -> list[int]: ...

    # WRITING -> LIVE; how many.
    def commit(self, buckets: Buckets, checksums: Sequence[int] | None = None, /) -> int: ...

    # Stores a word (nexuskv.h, NX_TIED) as the owner of WRITING and LIVE entries; how many.
    def tie(self, buckets: Buckets, word: int, /) -> int: ...

    # WRITING -> gone; how many.
    def abort(self, buckets: Buckets, /) -> int: ...

    # LIVE -> RETIRING; how many.
    def retire(self, buckets: Buckets, /) -> int: ...

    # RETIRING -> LIVE, unless the key was reserved anew; how many.
    def revive(self, buckets: Buckets, /) -> int: ...

    # Frees the RETIRING ones that no array pins, and names them: their slots, and no others, may be used again.
    def reclaim(self, buckets: Buckets, arrays: Sequence[PinArray], /) -> list[int]: ...
    def find(self, key: bytes, /) -> int | None: ...
    def read(self, bucket: int, /) -> Entry: ...
    # LIVE buckets that were used since the last call.
    def touched(self) -> list[int]: ...

    # Checks everything after a daemon died: live, retiring, writing, torn and dropped, segments dropped.
    def recover(self) -> tuple[int, int, int, int, int]: ...

    # Entries in use from a cursor (0 at first) on, and the next cursor (0 at the end).
    def entries(self, cursor: int, limit: int, /) -> tuple[int, list[Entry]]: ...

    # Raises FullError if the row that the number maps to is taken: use another number.
    def add_segment(
        self,
        segment: int,
        arena: int,
        slot_count: int,
        slot_bytes: int,
        page_bytes: int,
        segment_bytes: int,
        digest: bytes,
        /,
    ) -> None: ...
    def remove_segment(self, segment: int, /) -> None: ...
    def segments(self) -> list[SegmentRow]: ...
    def set_epoch(self, boot_epoch: int, /) -> None: ...
    def set_moved(self) -> None: ...
