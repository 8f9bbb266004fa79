"""The three shared objects of one tenant, made in memory files, and the two sides attached to them.

Owns descriptors until the `with` ends. Refuses to know a daemon: these tests are about the objects alone.
"""

import hashlib
import os
from types import TracebackType
from typing import Self

from nexuskv.native import _core
from nexuskv.native.rows import Record

INDEX_ID = 4711
SESSION = 9
SEGMENT = 3
SLOT_BYTES = 4096
PAGE_BYTES = 4000


def key(number: int) -> bytes:
    """A page key, as good as any."""
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=32).digest()


def memory_file(name: str, nbytes: int) -> int:
    """Descriptor of a zeroed object of that size."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    os.truncate(descriptor, nbytes)
    return descriptor


class Objects:
    """An index for `max_entries` with one segment of as many slots, and one pin object."""

    def __init__(
        self, max_entries: int = 100, pin_words: int = 64, *, instance: str = "test", epoch: int = 1
    ) -> None:
        index_bytes, touch_bytes = _core.index_bytes(max_entries, 8)
        self.max_entries = max_entries
        self.pin_words = pin_words
        self.instance, self.epoch = instance, epoch
        self.index = memory_file("index", index_bytes)
        self.touch = memory_file("touch", touch_bytes)
        self.others: list[int] = []
        self.format()
        self.pins = self.new_pins()
        self.writer = _core.Writer(self.index, self.touch)
        self.writer.add_segment(
            SEGMENT, 1, max_entries, SLOT_BYTES, PAGE_BYTES, max_entries * SLOT_BYTES, b"d" * 32
        )

    def format(self) -> None:
        """Writes the header."""
        _core.format_index(
            self.index,
            max_entries=self.max_entries,
            directory_capacity=8,
            boot_epoch=self.epoch,
            index_id=INDEX_ID,
            instance=self.instance,
            tenant="t",
        )

    def new_pins(self, index_id: int = INDEX_ID) -> int:
        """Descriptor of one more pin object."""
        self.others.append(memory_file("pins", _core.pin_bytes(self.pin_words)))
        _core.format_pins(self.others[-1], index_id, SESSION)
        return self.others[-1]

    def reader(self, pins: int | None = None) -> _core.Reader:
        """An attachment; a pin object serves one only."""
        return _core.Reader(self.index, self.touch, self.pins if pins is None else pins)

    def publish(self, *numbers: int) -> list[int]:
        """Makes pages resident, page n in slot n; their buckets."""
        return self.writer.publish([record(number) for number in numbers])

    def reserve(self, *numbers: int, owner: int = 0) -> list[int]:
        """Begins to write pages, page n in slot n; their buckets."""
        records = [record(number) for number in numbers]
        return self.writer.reserve(
            [each[0] for each in records],
            [each[1] for each in records],
            [SEGMENT << 32 | number for number in numbers],
            [each[5] for each in records],
            SLOT_BYTES,
            PAGE_BYTES,
            owner,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (self.index, self.touch, *self.others):
            os.close(descriptor)


def record(number: int, *, owner: int = 0, tick: int = 0, parent: bytes = b"") -> Record:
    """An entry for page `number`, in the slot of that number."""
    return (key(number), parent, SEGMENT, number * SLOT_BYTES, PAGE_BYTES, 16, owner, number, tick)


def keys(*numbers: int) -> list[bytes]:
    """Their keys."""
    return [key(number) for number in numbers]
