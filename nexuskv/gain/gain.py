"""The gain of one kind of state of one model: what computing costs there, and what fetching would.

Owns which of the known costs counts. The comparison is `route`, the estimates are `compute` and `paths`.
"""

from collections.abc import Sequence
from math import isfinite

from nexuskv.contract import Descriptor
from nexuskv.errors import CostUnknown, LocalError
from nexuskv.gain.compute import Learned
from nexuskv.gain.matrix import MATRIX
from nexuskv.gain.paths import MeasuredPath, Paths
from nexuskv.gain.route import Explanation, Offer, explain
from nexuskv.protocol.cost import ComputeCost


class Gain:
    """Costs are those of this engine, model and device: each has its own."""

    def __init__(self, descriptor: Descriptor, paths: Paths) -> None:
        self.descriptor = descriptor
        self.row = MATRIX[descriptor.semantic_type]
        self.paths = paths
        self.local: MeasuredPath | None = None
        """How what is resident here is read, if not from shared memory as it is: a pinned pool."""
        self._declared: ComputeCost | None = None
        self._learned = Learned(self.row.growth)

    def declare(self, seconds_per_token: float, seconds_per_token_squared: float = 0.0) -> None:
        """Says what computing costs: n tokens after s take `n * (a + q * (2 s + n))` seconds, of a and q in this order.

        It holds until a prefill is observed: what was measured counts more. `explain` weighs by it, and a fetch that
        would take longer, by what its path was measured to be, is not made. Raises LocalError.
        """
        cost = ComputeCost(seconds_per_token, seconds_per_token_squared)
        for name in cost.__struct_fields__:
            value = getattr(cost, name)
            if not (value >= 0 and isfinite(value)):
                raise LocalError(f"{name} is {value}: give a number of seconds, 0 or more")
        self._declared = cost

    def observe(self, tokens: int, seconds: float, *, start: int = 0) -> None:
        """Reports a prefill of `tokens` tokens that took `seconds`, after `start` cached ones. Raises LocalError."""
        self._learned.observe(tokens, seconds, start)

    @property
    def known(self) -> ComputeCost | None:
        """What computing costs: learned, or declared, or None."""
        return self._learned.cost if self._learned.prefills else self._declared

    @property
    def cost(self) -> ComputeCost:
        """What computing costs: learned, or declared. Raises CostUnknown."""
        cost = self.known
        if cost is None:
            raise CostUnknown(
                f"nobody said what computing {self.descriptor.descriptor_id} costs: declare seconds a token with "
                "gain.declare, or report a prefill with gain.observe"
            )
        return cost

    def explain(
        self, local_pages: int, offers: Sequence[Offer] = (), *, read_bytes: int | None = None
    ) -> Explanation:
        """The best way to a prefix of which `local_pages` pages are a boundary here, and `offers` at other hosts.

        `read_bytes` is how much of it will be read, where that is less than all. Raises CostUnknown.
        """
        local = self.local or self.paths.shared_memory
        return explain(self.descriptor, self.cost, local, local_pages, offers, read_bytes)
