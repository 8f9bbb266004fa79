"""The witness must tell shared memory of an instance from a copy of it."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nexuskv.harness.residence import Witness, private_bytes

INSTANCE = f"witness-{os.getpid()}"
PAGES = 4 * mmap.PAGESIZE


@pytest.fixture
def segment() -> Iterator[Path]:
    path = Path(f"/dev/shm/nexuskv-{INSTANCE}-0")
    path.write_bytes(bytes(PAGES))
    yield path
    path.unlink()


def mapped(path: Path, flags: int) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), PAGES, flags=flags)


def test_a_view_of_a_shared_mapping_is_in_place(segment: Path) -> None:
    with mapped(segment, mmap.MAP_SHARED) as memory:
        array = np.frombuffer(memory, dtype=np.uint8)
        witness = Witness(INSTANCE)
        assert witness.in_place(array)
        assert witness.in_place(array[4096:8192])
        assert not Witness("another").in_place(array)
        assert not witness.in_place(array.copy())
        del array


def test_a_private_mapping_is_a_copy(segment: Path) -> None:
    with mapped(segment, mmap.MAP_PRIVATE) as memory:
        array = np.frombuffer(memory, dtype=np.uint8)
        assert not Witness(INSTANCE).in_place(array)
        del array


def test_a_mapping_that_came_later_is_seen(segment: Path) -> None:
    witness = Witness(INSTANCE)
    assert not witness.in_place(np.zeros(8))
    with mapped(segment, mmap.MAP_SHARED) as memory:
        array = np.frombuffer(memory, dtype=np.uint8)
        assert witness.in_place(array)
        del array


def test_private_memory_counts_what_is_touched() -> None:
    before = private_bytes()
    touched = np.ones(64 * 2**20, dtype=np.uint8)
    assert private_bytes() - before > touched.nbytes // 2
