"""Fits Llama-3-8B's attention state to this machine: what is kept of each page, and in how much memory.

Owns the geometries to choose from and the sentence that says what was cut. Knows nothing of processes.

A block of the trace is one page of 512 tokens: key and value of 32 layers, 8 KV heads of 128 bfloat16 make
64 MiB. Layers are dropped first, then heads; only where not even four of the longest prompts fit is a head
cut too. Tokens, prefixes and so hit rates are those of the whole model; only the bytes of a page are fewer.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nexuskv.contract import Descriptor, mha, slot_bytes
from nexuskv.demo.ideal import Survey
from nexuskv.demo.trace import BLOCK_TOKENS
from nexuskv.errors import LocalError
from nexuskv.quantity import format_size

LAYERS, HEADS, HEAD_DIM = 32, 8, 128
MOST_MEMORY = 6 * 2**30
LEAST_PROMPTS = 4
SPARE_BLOCKS = 8
"""Blocks that one engine is writing when it is killed: they take room, and belong to no request."""


class TooSmall(LocalError):
    """A memory budget that cannot hold even a few prompts of the trace."""

    code = "too_small"


@dataclass(frozen=True)
class Plan:
    """One geometry and the budget it lives in; `fits` when every distinct block stays resident."""

    layers: int
    heads: int
    head_dim: int
    memory: int
    fits: bool

    @property
    def descriptor(self) -> Descriptor:
        return _descriptor(self.layers, self.heads, self.head_dim)

    @property
    def fraction(self) -> int:
        """How many times smaller a page is than that of the whole model."""
        return (LAYERS * HEADS * HEAD_DIM) // (self.layers * self.heads * self.head_dim)


def plan(survey: Survey, memory: int) -> Plan:
    """The largest geometry at which all distinct blocks fit `memory` bytes, else the smallest of whole heads.

    Raises TooSmall, with the bytes that are needed.
    """
    room = memory - memory // 16  # the end of the last segment, and pages on their way
    for layers, heads in _whole_heads():
        if (survey.distinct + SPARE_BLOCKS) * _slot(layers, heads, HEAD_DIM) <= room:
            return Plan(layers, heads, HEAD_DIM, memory, fits=True)
    return _smallest(survey, memory, room)


def _smallest(survey: Survey, memory: int, room: int) -> Plan:
    least = LEAST_PROMPTS * survey.longest + SPARE_BLOCKS
    for head_dim in (HEAD_DIM, 64, 32, 16, 8):
        slot = _slot(1, 1, head_dim)
        if least * slot <= room:
            return Plan(1, 1, head_dim, memory, fits=(survey.distinct + SPARE_BLOCKS) * slot <= room)
    need = -(-least * _slot(1, 1, 8) * 16 // 15 // 2**20)
    raise TooSmall(
        f"{format_size(memory)} of shared memory are too little for prompts of {survey.longest} blocks: give"
        f" --memory {need}MiB or more, and make /dev/shm as large"
    )


def _whole_heads() -> Iterator[tuple[int, int]]:
    yield from ((layers, HEADS) for layers in (32, 16, 8, 4, 2, 1))
    yield from ((1, heads) for heads in (4, 2, 1))


def _slot(layers: int, heads: int, head_dim: int) -> int:
    return slot_bytes(_descriptor(layers, heads, head_dim).page_bytes)


def _descriptor(layers: int, heads: int, head_dim: int) -> Descriptor:
    return mha(
        f"demo/llama-3-8b-{layers}x{heads}x{head_dim}-page{BLOCK_TOKENS}",
        layers=layers,
        kv_heads=heads,
        head_dim=head_dim,
        page_tokens=BLOCK_TOKENS,
        dtype="bfloat16",
        engine_family="VLLM",
    )


def default_memory() -> int:
    """Half of what is free in /dev/shm and in this machine or container, at most 6 GiB; in bytes."""
    shm = os.statvfs("/dev/shm")
    return min(shm.f_bavail * shm.f_frsize // 2, _available() // 2, _cgroup_room() // 2, MOST_MEMORY)


def _available() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _cgroup_room() -> int:
    """Bytes left below this process's own cgroup-v2 limit, or MOST_MEMORY twice over when there is none."""
    own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
    folder = Path("/sys/fs/cgroup") / own.lstrip("/")
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return 2 * MOST_MEMORY
    return 2 * MOST_MEMORY if limit == "max" else max(0, int(limit) - int(used))
