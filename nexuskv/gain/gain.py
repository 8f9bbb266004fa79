"""The gain of one kind of state of one model: what computing costs there, and what fetching would.

Owns which of the known costs counts. The comparison is `route`, the estimates are `compute` and `paths`.
"""

from collections.abc import Sequence

from nexuskv.contract import Descriptor
from nexuskv.errors import CostUnknown
from nexuskv.gain.compute import Declared, Learned
from nexuskv.gain.matrix import MATRIX
from nexuskv.gain.paths import MeasuredPath, Paths
from nexuskv.gain.route import Explanation, Offer, explain


class Gain:
    """Costs are those of this engine, model and device: each has its own."""

    def __init__(self, descriptor: Descriptor, paths: Paths) -> None:
        self.descriptor = descriptor
        self.row = MATRIX[descriptor.semantic_type]
        self.paths = paths
        self.local: MeasuredPath | None = None
        """How what is resident here is read, if not from shared memory as it is: a pinned pool."""
        self._declared: Declared | None = None
        self._learned = Learned(self.row.growth)

    def declare(self, cost: Declared) -> None:
        """Says what computing costs, until a prefill is observed: what was measured counts more."""
        self._declared = cost

    def observe(self, tokens: int, seconds: float, *, start: int = 0) -> None:
        """Reports a prefill of `tokens` tokens that took `seconds`, after `start` cached ones."""
        self._learned.observe(tokens, seconds, start)

    @property
    def cost(self) -> Declared:
        """What computing costs: learned, or declared. Raises CostUnknown."""
        if self._learned.prefills:
            return self._learned.cost
        if self._declared is None:
            raise CostUnknown(
                f"nobody said what computing {self.descriptor.descriptor_id} costs: declare seconds a token with "
                "gain.declare, or report a prefill with gain.observe"
            )
        return self._declared

    def explain(
        self, local_pages: int, *, keys: Sequence[bytes] = (), read_bytes: int | None = None
    ) -> Explanation:
        """The best way to a prefix of which `local_pages` pages are a boundary here; peers are asked for `keys`.

        `read_bytes` is how much of it will be read, where that is less than all. Raises CostUnknown.
        """
        offers = [Offer(path, path.boundary(self.descriptor, keys)) for path in self.paths.remote]
        local = self.local or self.paths.shared_memory
        return explain(self.descriptor, self.cost, local, local_pages, offers, read_bytes)
