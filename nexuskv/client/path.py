"""The page keys of a context, shared between a branch and its forks.

Owns the keys and nothing else. A fork is O(1): what was there is frozen and shared, and each side goes on in a list of
its own.

    frozen: k0 k1 k2 | k3 k4      parent's own: k5 k6
                     ^-- shared   child's own:  k5' k6' k7'
"""

from __future__ import annotations


class _Frozen:
    """Keys that nobody changes any more; `start` keys of `before` come before them."""

    __slots__ = ("before", "keys", "start")

    def __init__(self, before: _Frozen | None, start: int, keys: list[bytes]) -> None:
        self.before = before
        self.start = start
        self.keys = keys


class Path:
    """Keys in order, from the first page of the context to its tip."""

    __slots__ = ("_own", "_shared", "_start")

    def __init__(self, keys: list[bytes], shared: _Frozen | None = None, start: int = 0) -> None:
        """`keys` is kept, and changed. `start` keys of `shared` come before."""
        self._own = keys
        self._shared = shared
        self._start = start

    def __len__(self) -> int:
        return self._start + len(self._own)

    def keys(self) -> list[bytes]:
        """All of them, in a new list."""
        parts = [self._own]
        stop, node = self._start, self._shared
        while node is not None:
            parts.append(node.keys[: max(0, stop - node.start)])
            stop, node = min(stop, node.start), node.before
        return [key for part in reversed(parts) for key in part]

    def last(self, back: int = 0) -> bytes:
        """The last key, or the one `back` keys before it; empty where there is none."""
        index = len(self) - 1 - back
        if index >= self._start:
            return self._own[index - self._start]
        node = self._shared
        while node is not None and index < node.start:
            node = node.before
        return node.keys[index - node.start] if node is not None and index >= 0 else b""

    def fork(self) -> Path:
        """A path with the same keys that goes on by itself."""
        if self._own:
            self._shared = _Frozen(self._shared, self._start, self._own)
            self._start += len(self._own)
            self._own = []
        return Path([], self._shared, self._start)

    def extend(self, keys: list[bytes], *, replaces_last: bool) -> None:
        """Adds keys; the first of them may take the place of the last one, whose page was only partly filled."""
        if replaces_last and self._own:
            self._own.pop()
        elif replaces_last:
            self._start -= 1
        self._own += keys
