"""The tuples that cross the border of the C core, by name.

Owns their shapes, for annotations alone: the core makes and takes plain tuples, because a hit has no time for more.
"""

from collections.abc import Sequence
from typing import TypeAlias

Keys: TypeAlias = list[bytes] | tuple[bytes, ...] | bytes | bytearray | memoryview
"""32 bytes each: a list of bytes, or one buffer with all of them side by side."""

Buckets: TypeAlias = Sequence[int]

Extent: TypeAlias = tuple[int, int, int]
"""segment, offset, length"""

Page: TypeAlias = tuple[int, int, int, int]
"""segment, offset, length, tokens"""

SegmentRow: TypeAlias = tuple[int, int, int, int, int, int, bytes]
"""segment, arena, slot_count, slot_bytes, page_bytes, segment_bytes, digest"""

Record: TypeAlias = tuple[bytes, bytes, int, int, int, int, int, int, int]
"""key, parent (b"" = first of its chain), segment, offset, length, tokens, owner, checksum, tick (0 = the next one)"""

Entry: TypeAlias = tuple[bytes, bytes, int, int, int, int, int, int, int, int, int]
"""A record, its bucket, its state (WRITING, LIVE or RETIRING)."""
