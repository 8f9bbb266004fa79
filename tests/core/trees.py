"""Branches as a plain dict knows them, and memory that remembers which tokens stand in which slot."""

from __future__ import annotations

from dataclasses import dataclass, field

from nexuskv.contract import Descriptor, chain_root, mha, page_and_tail_keys, token_bytes
from nexuskv_daemon.core.arena import Arena
from nexuskv_daemon.core.branch import Branch
from nexuskv_daemon.core.growth import Extension, Growth, grow
from nexuskv_daemon.core.memory import SegmentRecord
from nexuskv_daemon.core.store import Store

S = 4
"""Tokens a page."""
SEGMENT = 4096
Tokens = list[int]


def descriptor() -> Descriptor:
    """Pages of 512 bytes, so that a segment of one machine page holds eight."""
    return mha(
        "tree", layers=1, kv_heads=1, head_dim=32, page_tokens=S, dtype="bfloat16", engine_family="VLLM"
    )


ROOT = chain_root(descriptor().digest, "m", "t", "")


def keys(tokens: Tokens) -> list[bytes]:
    """Of all pages of a context, a partly filled last one included."""
    return page_and_tail_keys(ROOT, tokens, S)[0]


def pages(tokens: Tokens) -> list[Tokens]:
    """The tokens of each page."""
    return [tokens[at : at + S] for at in range(0, len(tokens), S)]


def extension(before: Tokens, added: Tokens) -> Extension:
    """What an append of `added` asks for."""
    start = len(before) // S
    tail = token_bytes((before + added)[len(before + added) // S * S :])
    return Extension(keys(before + added)[start:], len(added), tail)


@dataclass
class Known:
    """A branch as it should be; `parent` is a number."""

    tokens: Tokens
    parent: int | None = None
    depth: int = 0
    holders: int = 1
    published: bool = False


@dataclass
class Open:
    """An append that is not ended."""

    growth: Growth
    added: Tokens


@dataclass
class Memory:
    """What stands in each slot, token by token, as appenders and writers put it there."""

    slots: dict[int, Tokens] = field(default_factory=dict)

    def write(self, growth: Growth, before: Tokens, added: Tokens) -> None:
        """What an appender does: it copies the tail if it was told so, and writes the new tokens, and nothing else."""
        by_key = dict(zip(keys(before + added), pages(before + added), strict=True))
        tail = len(before) % S
        for place, entry in enumerate(growth.entries):
            page = by_key[entry.key]
            first = place == 0 and entry.key == keys(before + added)[len(before) // S]
            kept = tail if first else 0
            there = self.slots.get(entry.handle, [])
            if first and growth.source is not None:
                there = self.slots[growth.source.handle][:tail]
            self.slots[entry.handle] = there[:kept] + page[kept:]

    def holds(self, arena: Arena, contexts: dict[bytes, Tokens]) -> None:
        """Every resident page holds what its key says."""
        for key, entry in arena.index.items():
            assert self.slots[entry.handle][: len(contexts[key])] == contexts[key]


def path(branch: Branch) -> list[bytes]:
    """Keys of a branch's pages, from the first on."""
    found: list[bytes] = []
    entry = branch.end.tip
    while entry is not None:
        found.append(entry.key)
        entry = entry.parent
    return found[::-1]


def make_segments(store: Store) -> list[SegmentRecord]:
    """Makes what the store asks for."""
    made = [store.memory.made(record.number) for record in store.room.planned]
    store.room.planned.clear()
    store.room.dropped.clear()
    return made


def append(store: Store, branch: Branch, before: Tokens, added: Tokens, owner: int = 1) -> Growth:
    """Opens an append, with the segments that it needs. Raises as `grow` does."""
    believed = keys(before)[-1] if before else b""
    while (growth := grow(store, branch, believed, extension(before, added), 0.0, owner)) is None:
        make_segments(store)
    make_segments(store)
    return growth
