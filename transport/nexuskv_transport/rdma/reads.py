"""From pulls to READs, and the books of a send queue. Pure: no device, no I/O, no clock.

Owns how a pull is cut where registrations end, here or there, and at the largest message of the device; and how a
completion that speaks for a whole chain is read.

    pull         |------------------------------|
    local keys   |== lkey 7 ==|===== lkey 9 ====|
    remote keys  |===== rkey 3 =====|= rkey 5 ==|
    READs        |-----a------|--b--|-----c-----|
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nexuskv.errors import LocalError
from nexuskv_transport.base import Chunk, KeyedRegion, Pull

CHAIN = 32
"""Most READs of one post."""
CHAIN_BYTES = 4 << 20
"""A chain ends after so many: its one completion frees them all at once."""


class Stretch(NamedTuple):
    """Memory that one key opens."""

    address: int
    nbytes: int
    key: int


class Read(NamedTuple):
    """One work request. `last` of the pull `id` or not."""

    id: int
    local: int
    lkey: int
    remote: int
    rkey: int
    nbytes: int
    last: bool


def part_of(stretches: Iterable[Stretch], offset: int, nbytes: int) -> list[Stretch]:
    """The part of consecutive stretches that begins `offset` bytes into them. Raises LocalError unless it is there."""
    found, left = [], nbytes
    for stretch in stretches:
        if not left:
            break
        if offset >= stretch.nbytes:
            offset -= stretch.nbytes
            continue
        taken = min(left, stretch.nbytes - offset)
        found.append(Stretch(stretch.address + offset, taken, stretch.key))
        offset, left = 0, left - taken
    if left:
        raise LocalError(f"the last {left} of {nbytes} bytes belong to no registered memory")
    return found


def reads_of(
    pull: Pull, start: int, local: Sequence[Stretch], region: KeyedRegion, message: int
) -> list[Read]:
    """The READs of a pull that writes to address `start`, which lies in `local`. `message`: most bytes of one.

    Raises LocalError where the region's chunks do not hold what the pull is of.
    """
    nbytes, offset = pull.into.nbytes, pull.offset
    here, there = local[0], region.chunks[0]
    if offset < 0:
        raise LocalError(f"pull {pull.id}: an offset of {offset} lies before its region")
    if (
        start + nbytes <= here.address + here.nbytes and offset + nbytes <= there.nbytes and nbytes <= message
    ):  # nearly always
        return [Read(pull.id, start, here.key, there.address + offset, there.rkey, nbytes, True)]
    ours = part_of(local, start - here.address, nbytes)
    theirs = part_of((Stretch(*each) for each in map(_fields, region.chunks)), offset, nbytes)
    return list(_cut(pull.id, ours, theirs, message))


def _fields(chunk: Chunk) -> tuple[int, int, int]:
    return chunk.address, chunk.nbytes, chunk.rkey


def _cut(id_: int, local: Sequence[Stretch], remote: Sequence[Stretch], message: int) -> Iterator[Read]:
    """READs of stretches that are of the same length altogether."""
    left = sum(each.nbytes for each in local)
    here, there = deque(local), deque(remote)
    while left:
        ours, theirs = here.popleft(), there.popleft()
        nbytes = min(ours.nbytes, theirs.nbytes, message)
        left -= nbytes
        yield Read(id_, ours.address, ours.key, theirs.address, theirs.key, nbytes, last=not left)
        for queue, each in ((here, ours), (there, theirs)):
            if each.nbytes > nbytes:
                queue.appendleft(Stretch(each.address + nbytes, each.nbytes - nbytes, each.key))


class Window:
    """What a send queue holds, oldest first. Work requests are numbered in the order in which they are posted.

    Never more than `depth` are in it, and the queues of the device are at least that deep: each work request may end in
    a completion of its own (an error), so neither the send queue nor the completion queue can overflow.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._posted: deque[Read] = deque()
        self._oldest = 0

    def __len__(self) -> int:
        return len(self._posted)

    def admit(self, waiting: deque[Read]) -> tuple[int, list[Read]]:
        """Takes the next chain out of what waits, as far as there is room, and numbers it from the first on."""
        chain: list[Read] = []
        first = self._oldest + len(self._posted)
        nbytes = 0
        for _ in range(min(CHAIN, self._depth - len(self._posted), len(waiting))):
            read = waiting.popleft()
            chain.append(read)
            nbytes += read.nbytes
            if nbytes >= CHAIN_BYTES:
                break
        self._posted.extend(chain)
        return first, chain

    def complete(self, number: int) -> list[int]:
        """A success of work request `number`, and with it of all before it: the pulls that are done by that."""
        count = min(number + 1 - self._oldest, len(self._posted))
        self._oldest += max(0, count)
        ended = [self._posted.popleft() for _ in range(count)]
        return [read.id for read in ended if read.last]

    def fail(self, number: int) -> tuple[list[int], int | None]:
        """An error of work request `number`: the pulls that were done before it, and the one that it is of."""
        done = self.complete(number - 1)
        if not self._posted or number != self._oldest:
            return done, None
        self._oldest += 1
        return done, self._posted.popleft().id
