"""Which branches one session holds, and how often.

Owns the counts that must be undone when the connection ends, and their bound.
"""

from collections import Counter
from collections.abc import ItemsView

from nexuskv.errors import BadRequest, UnknownBranch
from nexuskv.protocol.branches import MAX_HELD
from nexuskv_daemon.core.branch import Branch


class Holdings:
    """Counts of holds by branch; `total` at most `limit`."""

    def __init__(self, limit: int = MAX_HELD) -> None:
        self._counts: Counter[Branch] = Counter()
        self._limit = limit
        self.total = 0

    def __contains__(self, branch: Branch) -> bool:
        return branch in self._counts

    def items(self) -> ItemsView[Branch, int]:
        """Each branch and how often it is held."""
        return self._counts.items()

    def refuse_beyond(self, more: int) -> None:
        """Raises BadRequest when `more` would be too many."""
        if self.total + more > self._limit:
            raise BadRequest(
                f"{more} more branches: this session holds {self.total}, and {self._limit} is the most; drop some"
            )

    def add(self, branch: Branch) -> None:
        """One more hold."""
        self._counts[branch] += 1
        self.total += 1

    def remove(self, branch: Branch) -> None:
        """One hold less. Raises UnknownBranch when there is none."""
        self.require(branch)
        self._counts[branch] -= 1
        self.total -= 1
        if not self._counts[branch]:
            del self._counts[branch]

    def require(self, branch: Branch) -> None:
        """Raises UnknownBranch for a branch that the session does not hold."""
        if branch not in self._counts:
            raise UnknownBranch(
                f"branch {branch.number} is not held by this session: never attached to here, or dropped"
            )
