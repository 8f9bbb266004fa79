"""What a cache without limits would have hit: the yardstick for the real one.

Owns the tree of block prefixes of a trace. Knows nothing of bytes: a block's place in the tree is a number,
equal for two requests exactly when they agree on every block up to it (which is what a page key says too).
"""

from collections.abc import Iterable

from nexuskv.demo.trace import TraceRequest

ROOT = -1


class PrefixTree:
    """Numbers every distinct block prefix; a number names the same prefix as the page key of that block."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def path(self, hash_ids: Iterable[int]) -> list[int]:
        """The number of each leading prefix; new ones are added, and numbered from `len(self)` on."""
        nodes, parent, numbers = self._nodes, ROOT, list[int]()
        for block in hash_ids:
            parent = nodes.setdefault((parent, block), len(nodes))
            numbers.append(parent)
        return numbers

    def leading_known(self, hash_ids: Iterable[int]) -> int:
        """How many leading blocks an unlimited cache holds already; it holds all of them afterwards."""
        known = len(self)
        return sum(number < known for number in self.path(hash_ids))


class Survey:
    """Counts over the whole of a trace: what it asks for, and what an unlimited cache would answer."""

    def __init__(self, requests: Iterable[TraceRequest]) -> None:
        self.requests = self.tokens = self.blocks = self.hit_blocks = self.hit_tokens = self.longest = 0
        tree = PrefixTree()
        for request in requests:
            self._count(request, tree.leading_known(request.hash_ids))
        self.distinct = len(tree)

    def _count(self, request: TraceRequest, hits: int) -> None:
        self.requests += 1
        self.tokens += request.input_length
        self.blocks += len(request.hash_ids)
        self.longest = max(self.longest, len(request.hash_ids))
        self.hit_blocks += hits
        self.hit_tokens += request.tokens_in(hits)

    @property
    def hit_rate(self) -> float:
        """Hit blocks over all blocks, 0 to 1."""
        return self.hit_blocks / self.blocks
