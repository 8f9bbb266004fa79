"""The rows of the routing matrix on this host: each path really runs, and has the property that the row is named for.

What an engine sees is held against the kernel's view: the objects in /dev/shm, the maps and locks of this process.
"""

from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import nexuskv
from nexuskv.client.hit import Handle
from nexuskv.contract import Descriptor
from nexuskv.gain import Decision
from nexuskv.harness.residence import Witness
from tests.end_to_end.test_pinned import locked
from tests.support import processes
from tests.support.daemon import Daemon, running
from tests.support.pages import content, fill, intact, keys, put
from tests.support.trees import grow, reads, root

GQA = nexuskv.mha("gqa", layers=2, kv_heads=2, head_dim=64, dtype="bfloat16", engine_family="VLLM")
MLA = nexuskv.mla("mla", layers=3, dtype="bfloat16", engine_family="VLLM")
DSA = nexuskv.dsa(
    "dsa", top_k=16, block_tokens=4, kv_heads=1, head_dim=512, dtype="float16", engine_family="VLLM"
)
KDA = nexuskv.kda("kda", layers=2, heads=4, key_dim=32, conv_width=4, dtype="bfloat16", engine_family="VLLM")
MAMBA = nexuskv.mamba2(
    "mamba", layers=2, heads=4, head_dim=16, state_size=32, page_tokens=16, dtype="bfloat16", engine_family="VLLM"
)  # fmt: skip
VISION = nexuskv.vision(
    "vision", layers=2, grid_height=8, grid_width=8, key_dim=128, dtype="float16", engine_family="VLLM"
)
TOT = nexuskv.tot(
    "tot", layers=2, kv_heads=8, head_dim=64, page_tokens=4, dtype="float16", engine_family="SGLANG"
)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(memory="64MiB") as daemon:
        yield daemon


def stored(daemon: Daemon, handle: Handle) -> bytes:
    """What stands in shared memory where a handle says, past every library of ours."""
    with Path(f"/dev/shm/nexuskv-{daemon.instance}-data-{handle.segment}").open(
        "rb"
    ) as segment:  # the object itself
        segment.seek(handle.offset)
        return segment.read(handle.length)


def mapped_at(daemon: Daemon, handle: Handle) -> set[int]:
    """Addresses at which this process has a handle's first byte."""
    name = f"/nexuskv-{daemon.instance}-data-{handle.segment}"
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    starts = {int(line[0].split("-")[0], 16) for line in lines if len(line) > 5 and line[5].endswith(name)}
    return {start + handle.offset for start in starts}


def write(pipe: Connection, address: str, descriptor: Descriptor, pages: int) -> None:
    """Another engine that computed some pages."""
    with nexuskv.connect(address) as client:
        cache = client.open(descriptor, model="m")
        pipe.send(put(cache, keys(cache, pages)))


def test_gqa_a_handle_in_shared_memory(daemon: Daemon) -> None:
    with processes.running(write, daemon.address, GQA, 3) as writer, daemon.client() as client:
        assert writer.receive() == 3
        cache = client.open(GQA, model="m")
        with cache.match(keys(cache, 3)) as hit:
            assert len(hit.handles) == 3
            for page, handle in zip(hit, hit.handles, strict=True):
                assert handle.length == 2 * 2 * 16 * 2 * 64 * 2
                assert stored(daemon, handle) == content(page.key, handle.length).tobytes()
                assert page.buffer.ctypes.data in mapped_at(daemon, handle)


def test_mla_latents_as_they_are(daemon: Daemon) -> None:
    """Latent and rotary key of a page lie side by side as they were written, in one extent without a gap."""
    noise = np.random.default_rng(1)
    with daemon.client() as client:
        cache = client.open(MLA, model="m")
        written = {}
        with cache.reserve(keys(cache, 1)) as pages:
            for name in ("latent", "rope_k"):
                raw = noise.integers(0, 256, pages[0][name].nbytes, np.uint8)
                pages[0][name][...] = raw.view(pages[0][name].dtype).reshape(pages[0][name].shape)
                written[name] = raw.tobytes()
        with cache.match(keys(cache, 1)) as hit:
            (handle,) = hit.handles
            assert handle.length == 3 * 16 * (512 + 64) * 2
            assert stored(daemon, handle) == written["latent"] + written["rope_k"]
            assert {name: hit[0][name].tobytes() for name in written} == written


def test_dsa_just_the_selected_blocks(daemon: Daemon) -> None:
    block = 4 * 512 * 2
    with daemon.client() as client:
        cache = client.open(DSA, model="m")
        with cache.reserve(keys(cache, 2)) as pages:
            fill(pages)
            for page in pages:
                page["selector"][...] = np.arange(16) + 16 * page.position
        cache.gain.declare(1.0)
        with cache.match(keys(cache, 2)) as hit:
            selected = hit.blocks([17, 4])
            assert [array.nbytes for array in selected] == [block, block]
            assert selected[0].tobytes() == hit[1]["blocks"][1].tobytes()
            assert selected[1].tobytes() == hit[0]["blocks"][4].tobytes()
            witness = Witness(daemon.instance)
            assert all(witness.in_place(array) for array in selected)
            read = sum(array.nbytes for array in selected)
        found = cache.explain(keys(cache, 2), read_bytes=read)
        assert (found.nbytes, found.gain) == (2 * block, "T_sparse_compute - T_sparse_pull")


def test_kda_a_checkpoint_by_its_pointer(daemon: Daemon) -> None:
    with processes.running(write, daemon.address, KDA, 4) as writer, daemon.client() as client:
        assert writer.receive() == 4
        cache = client.open(KDA, model="m")
        with cache.match(keys(cache, 4)) as hit:
            (handle,) = hit.handles
            assert (len(hit), hit.tokens) == (1, 4 * 256)
            bases = mapped_at(daemon, handle)
            for place in KDA.page_layout.tensors:
                assert hit[0][place.name].ctypes.data - place.offset in bases
            assert intact(hit)


def test_mamba_one_handle_at_a_constant_cost(daemon: Daemon) -> None:
    """Whatever the context: one pin, one handle, as many bytes."""
    with daemon.client() as client:
        cache = client.open(MAMBA, model="m")
        put(cache, keys(cache, 512))
        costs = set()
        for pages in (1, 32, 512):
            with cache.match(keys(cache, pages)) as hit:
                assert hit.tokens == 16 * pages
                costs.add(
                    (len(hit), client.stats().tenants[0].pinned, sum(each.length for each in hit.handles))
                )
        assert costs == {(1, 1, MAMBA.page_bytes)}


def test_vision_a_pool_that_is_pinned_once(daemon: Daemon) -> None:
    before = locked()
    with daemon.client() as client:
        cache = client.open(VISION, model="m")
        cache.gain.declare(1.0)
        image, other = (cache.content_keys(name.encode()) for name in ("an image", "another"))
        put(cache, image)
        with cache.match(image) as hit:
            assert intact(hit)
        pinned = cache.pin_pool()
        assert locked() - before == pinned.new_nbytes > 0
        put(cache, other)
        assert cache.pin_pool().new_segments == 0
        assert locked() - before == pinned.nbytes
        found = cache.explain(other)
        assert (found.decision, found.path) == (Decision.LOCAL_POINTER, "pinned_memory")
    assert locked() == before


def test_tot_a_branch_that_moves_nothing(daemon: Daemon) -> None:
    prompt = list(range(64))
    with daemon.client() as client:
        cache = client.open(TOT, model="m")
        parent = root(cache, prompt)
        before = client.stats().arenas[0]
        children = parent.fork(50)
        with parent.read() as ours:
            pointers = ours.handles
        for child in children:
            with child.read() as theirs:
                assert theirs.handles == pointers
        after = client.stats().arenas[0]
        unmoved = ("resident", "free", "bytes", "copied", "committed", "writing")
        assert all(getattr(after, name) == getattr(before, name) for name in unmoved)
        grow(children[0], [1] * 4)
        assert client.stats().arenas[0].resident == before.resident + 1
        assert reads(children[1], prompt)
