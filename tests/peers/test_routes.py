"""The routing matrix between two hosts: every kind of state comes byte for byte, and no more of it than is needed.

What `fetch` says came is compared with what the daemon counts of its peer. Sparse blocks are in `test_blocks.py`.
"""

import numpy as np
import pytest

import nexuskv
from nexuskv.contract import Descriptor
from tests.support import pages
from tests.support.hosts import MODEL, Host, pair, peer

CHAIN = 9
MHA = nexuskv.mha(
    "gqa", layers=2, kv_heads=2, head_dim=64, page_tokens=16, dtype="bfloat16", engine_family="VLLM"
)
MLA = nexuskv.mla("latent", layers=3, latent_dim=512, rope_dim=64, dtype="bfloat16", engine_family="VLLM")
KDA = nexuskv.kda("kda", layers=2, heads=4, key_dim=32, dtype="bfloat16", engine_family="VLLM")
MAMBA = nexuskv.mamba2(
    "mamba", layers=2, heads=4, head_dim=16, state_size=16, page_tokens=64, dtype="float16", engine_family="VLLM"
)  # fmt: skip
BRANCHING = nexuskv.mha(
    "branching", layers=2, kv_heads=2, head_dim=64, page_tokens=16, dtype="bfloat16", engine_family="VLLM",
    compatibility_flags=["EXACT_REUSE", "PREFIX_REUSE", "COW_BRANCH"],
)  # fmt: skip
IMAGE = nexuskv.vision(
    "image", layers=2, grid_height=8, grid_width=8, key_dim=32, dtype="float16", engine_family="VLLM"
)


def moved(client: nexuskv.Client, other: Host) -> tuple[int, int]:
    """Pages and bytes that came from a peer so far, by the daemon's count."""
    found = peer(client, other.address)
    assert found is not None
    return found.pages_in, found.bytes_in


@pytest.mark.parametrize("kind", [MHA, MLA], ids=["MHA", "MLA"])
def test_attention_pages_move_as_they_are(kind: Descriptor) -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(kind, model=MODEL), here.open(kind, model=MODEL)
        keys = pages.keys(theirs, CHAIN)
        pages.put(theirs, keys)
        pages.put(ours, keys[:2])
        with ours.match(keys, fetch=True) as hit:
            assert (hit.start, hit.stop) == (0, CHAIN)
            assert pages.intact(hit)
        assert moved(here, first) == (CHAIN - 2, (CHAIN - 2) * kind.page_bytes)


@pytest.mark.parametrize("kind", [KDA, MAMBA], ids=["KDA", "Mamba"])
def test_a_checkpoint_moves_once_however_long_the_context_is(kind: Descriptor) -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(kind, model=MODEL), here.open(kind, model=MODEL)
        for nth, length in enumerate((2, 30, 300), start=1):
            keys = pages.keys(theirs, length, branch=length)
            pages.put(theirs, [keys[-1]])
            with ours.match(keys, fetch=True) as hit:
                assert (hit.start, hit.stop) == (length - 1, length)
                assert hit.tokens == length * kind.page_tokens
                assert pages.intact(hit)
            assert moved(here, first) == (nth, nth * kind.page_bytes)


def test_an_image_is_found_on_another_host_by_its_content() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(IMAGE, model=MODEL), here.open(IMAGE, model=MODEL)
        tiles = theirs.content_keys(pixels, 4)
        pages.put(theirs, tiles)
        pages.put(ours, tiles[1:2])
        with ours.match(ours.content_keys(pixels.tobytes(), 4), fetch=True) as hit:
            assert len(hit) == 4
            assert pages.intact(hit)
        assert moved(here, first) == (3, 3 * IMAGE.page_bytes)
        pixels[0, 0, 0] ^= 1
        assert ours.fetch(ours.content_keys(pixels, 4)).pages == 0


def test_of_a_branch_only_what_is_absent_moves() -> None:
    with pair() as (first, second), first.client() as there, second.client() as here:
        theirs, ours = there.open(BRANCHING, model=MODEL), here.open(BRANCHING, model=MODEL)
        trunk = pages.keys(theirs, CHAIN)
        pages.put(theirs, trunk)
        with theirs.branch(trunk) as root, root.fork() as thought:
            with thought.append([7] * (3 * BRANCHING.page_tokens + 5)) as grown:
                for page in grown:
                    page.buffer[...] = pages.content(page.key, page.buffer.nbytes)
            thought.publish()
            with thought.read() as hit:
                path = [page.key for page in hit]
        assert len(path) == CHAIN + 4
        assert ours.fetch(trunk).pages == CHAIN
        came = ours.fetch(path)
        # The last page is not full: that is known to the branch alone, and it may grow.
        assert (came.pages, came.bytes) == (3, 3 * BRANCHING.page_bytes)
        assert moved(here, first) == (CHAIN + 3, (CHAIN + 3) * BRANCHING.page_bytes)
        assert pages.verified(ours, path) == CHAIN + 3
        with ours.branch(path[:-1]) as again, again.fork() as child:
            assert child.tokens == (CHAIN + 3) * BRANCHING.page_tokens
        assert moved(here, first)[0] == CHAIN + 3
