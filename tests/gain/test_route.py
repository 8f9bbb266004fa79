"""Which way is chosen, by which numbers: costs are given, so every figure can be computed by hand."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.contract import PRESETS, Descriptor, Window, mamba2, mha, usable
from nexuskv.errors import LocalError
from nexuskv.gain import MATRIX, ComputeCost, Decision, MeasuredPath, Offer, explain

ATTENTION = mha(  # 4 KiB a page of 16 tokens
    "a", layers=1, kv_heads=4, head_dim=16, dtype="float16", engine_family="VLLM", page_tokens=16
)
WINDOW = mha(
    "w",
    layers=1,
    kv_heads=4,
    head_dim=16,
    dtype="float16",
    engine_family="VLLM",
    page_tokens=16,
    reuse=Window(64),
)
MAMBA = mamba2(
    "m", heads=4, head_dim=16, state_size=16, dtype="float16", engine_family="VLLM", page_tokens=16
)
COST = ComputeCost(1e-3)
MEMORY = MeasuredPath("shared_memory", 1e-6, 4096e6)  # a page a microsecond
RDMA = MeasuredPath("rdma", 10e-6, 2048e6)
TCP = MeasuredPath("tcp", 100e-6, 1024e6)


def offer(path: MeasuredPath, pages: int) -> Offer:
    """A host that is reached over a path."""
    return Offer(f"{path.name}-host", pages, path)


SPECIFIED = {
    "MHA_KV": ("paged block", "POSIX SHM, direct RDMA", "T_compute - T_cache"),
    "MLA_LATENT": (
        "latent page (c_KV + k_R)",
        "zero-copy RDMA descriptors",
        "T_prefill_mla - T_rdma_latent",
    ),
    "DSA_SPARSE": ("sparse mask block", "on-demand block pull", "T_sparse_compute - T_sparse_pull"),
    "KDA_RECURRENT": ("checkpoint segment", "direct SHM pointer", "T_recurrent_recompute - T_h_t_load"),
    "SSM_MAMBA2": ("state snapshot, O(1)", "fast IPC handle", "T_ssm_scan - T_snapshot_load"),
    "VISION_KV": ("spatio-temporal tensor", "pinned memory pool", "T_vision_encode - T_vision_cache"),
    "TOT_BRANCH": ("copy-on-write radix branch", "O(1) page pointer reuse", "T_branch_recompute - 0"),
}


@pytest.mark.parametrize("kind", SPECIFIED)
def test_the_matrix_says_what_was_specified(kind: str) -> None:
    row = MATRIX[kind]
    assert (row.granularity, row.transport, row.gain) == SPECIFIED[kind]


@pytest.mark.parametrize("descriptor", PRESETS.values(), ids=PRESETS)
def test_every_kind_has_a_row(descriptor: Descriptor) -> None:
    explanation = explain(descriptor, COST, MEMORY, 4)
    row = MATRIX[descriptor.semantic_type]
    assert (explanation.semantic_type, explanation.gain) == (descriptor.semantic_type, row.gain)
    assert explanation.decision is Decision.LOCAL_POINTER
    assert row.gain in explanation.reason


def test_what_is_here_is_read_in_place() -> None:
    found = explain(ATTENTION, COST, MEMORY, 10)
    assert (found.decision, found.path) == (Decision.LOCAL_POINTER, "shared_memory")
    assert (found.boundary_tokens, found.pages, found.nbytes) == (160, 10, 40_960)
    assert found.compute_seconds == pytest.approx(0.16)
    assert found.cache_seconds == pytest.approx(11e-6)
    assert found.gain_seconds == pytest.approx(0.16 - 11e-6)


def test_nothing_resident_is_computed() -> None:
    found = explain(ATTENTION, COST, MEMORY, 0)
    assert (found.decision, found.path, found.boundary_tokens) == (Decision.RECOMPUTE, "none", 0)
    assert found.gain_seconds == 0
    assert "nothing is resident" in found.reason


@pytest.mark.parametrize(
    ("seconds_per_token", "decision"),
    [(11.1e-6 / 160, Decision.LOCAL_POINTER), (10.9e-6 / 160, Decision.RECOMPUTE)],
)
def test_the_gain_decides(seconds_per_token: float, decision: Decision) -> None:
    found = explain(ATTENTION, ComputeCost(seconds_per_token), MEMORY, 10)
    assert found.decision is decision
    assert "T_compute - T_cache = 1" in found.reason


def test_a_peer_sends_what_is_not_here() -> None:
    found = explain(ATTENTION, COST, MEMORY, 10, [offer(RDMA, 30)])
    assert (found.decision, found.path, found.peer) == (Decision.PULL_FROM_PEER, "rdma", "rdma-host")
    assert (found.boundary_tokens, found.pages, found.nbytes) == (480, 20, 81_920)
    # 10 us and 20 pages of 2 us over the network, then 1 us and 30 pages of 1 us in place
    assert found.cache_seconds == pytest.approx((10 + 40 + 1 + 30) * 1e-6)
    assert found.gain_seconds == pytest.approx(0.48 - 81e-6)
    assert "shared_memory gains 160 ms up to token 160" in found.reason


def test_the_faster_of_two_peers_is_asked() -> None:
    found = explain(ATTENTION, COST, MEMORY, 0, [offer(TCP, 30), offer(RDMA, 30)])
    assert found.path == "rdma"
    assert [option.path for option in found.options] == ["none", "tcp", "rdma"]


def test_the_longer_boundary_of_a_slower_peer_may_win() -> None:
    assert explain(ATTENTION, COST, MEMORY, 0, [offer(TCP, 30), offer(RDMA, 29)]).path == "tcp"


def test_a_peer_that_has_no_more_is_not_asked() -> None:
    found = explain(ATTENTION, COST, MEMORY, 10, [offer(RDMA, 10)])
    assert [option.path for option in found.options] == ["none", "shared_memory"]


def test_a_snapshot_costs_the_same_whatever_the_context() -> None:
    short, long = (explain(MAMBA, COST, MEMORY, pages, [offer(RDMA, pages + 1)]) for pages in (1, 1000))
    for one, other in zip(short.options[1:], long.options[1:], strict=True):
        assert (one.pages, one.nbytes) == (other.pages, other.nbytes) == (1, MAMBA.page_bytes)
        assert one.cache_seconds == other.cache_seconds


def test_of_a_window_only_its_pages_are_moved() -> None:
    found = explain(WINDOW, COST, MEMORY, 0, [offer(RDMA, 100)])
    assert (found.pages, found.nbytes, found.boundary_tokens) == (4, 16_384, 1600)
    assert explain(WINDOW, COST, MEMORY, 98, [offer(RDMA, 100)]).pages == 2


def test_selected_blocks_cost_what_they_hold() -> None:
    found = explain(ATTENTION, COST, MEMORY, 10, [offer(RDMA, 30)], read_bytes=4096)
    assert [option.nbytes for option in found.options] == [0, 4096, 4096]


def test_less_than_nothing_is_not_read() -> None:
    assert explain(ATTENTION, COST, MEMORY, 10, read_bytes=0).nbytes == 0
    with pytest.raises(LocalError, match="read_bytes is -1"):
        explain(ATTENTION, COST, MEMORY, 10, read_bytes=-1)


@pytest.mark.parametrize("descriptor", [ATTENTION, WINDOW, MAMBA], ids=lambda each: each.descriptor_id)
def test_the_longest_context_is_computed_not_counted(descriptor: Descriptor) -> None:
    tokens = 2**32 - 1
    found = explain(descriptor, COST, MEMORY, tokens // 16)
    needed = {"a": tokens // 16, "w": 4, "m": 1}[descriptor.descriptor_id]
    assert (found.pages, found.nbytes) == (needed, needed * descriptor.page_bytes)


def test_it_is_one_struct_and_plain_json() -> None:
    found = explain(ATTENTION, COST, MEMORY, 10, [offer(RDMA, 30)])
    written = msgspec.json.decode(msgspec.json.encode(found))
    assert written["decision"] == "pull_from_peer"
    assert written["options"][1]["gain_seconds"] == pytest.approx(0.16 - 11e-6)


def test_of_a_longer_pull_that_loses_it_is_said_what_it_would_add() -> None:
    cost = ComputeCost(1e-7)  # 480 tokens take 48 us, 160 take 16
    found = explain(ATTENTION, cost, MEMORY, 10, [offer(TCP, 30)])
    assert (found.decision, found.path, found.peer) == (Decision.LOCAL_POINTER, "shared_memory", "")
    # 100 us and 20 pages of 4 us over the network and of 1 us in place, against 320 tokens of 0.1 us
    slower = "pulling 320 tokens more over tcp from tcp-host is slower than computing them: 200 us, not 32 us"
    assert slower in found.reason


def test_when_nothing_is_quicker_than_computing_every_peer_is_told_of() -> None:
    found = explain(ATTENTION, ComputeCost(1e-9), MEMORY, 0, [offer(TCP, 30), offer(RDMA, 30)])
    assert found.decision is Decision.RECOMPUTE
    assert "<= 0 over rdma from rdma-host: computing 480 tokens is at least as fast" in found.reason
    assert "over tcp from tcp-host is slower than computing them" in found.reason


def test_a_way_that_no_pull_has_measured_is_told_of_and_not_chosen() -> None:
    found = explain(ATTENTION, COST, MEMORY, 10, [Offer("far", 30, None), Offer("near", 10, None)])
    assert found.decision is Decision.LOCAL_POINTER
    assert [option.path for option in found.options] == ["none", "shared_memory"]
    assert found.reason.endswith("; far has it up to token 480, at a cost that the first fetch will measure")


@given(
    descriptor=st.sampled_from([ATTENTION, WINDOW, MAMBA]),
    a=st.floats(0, 1e-4),
    q=st.floats(0, 1e-8),
    here=st.integers(0, 40),
    there=st.integers(0, 40),
)
def test_no_shorter_boundary_would_be_better(
    descriptor: Descriptor, a: float, q: float, here: int, there: int
) -> None:
    """Against every boundary of every path, each by its formula."""
    cost = ComputeCost(a, q)
    best = 0.0
    for boundary in range(1, max(here, there) + 1):
        needed = usable(descriptor.reuse, [True] * boundary, descriptor.page_tokens)
        seconds = MEMORY.seconds(len(needed), len(needed) * descriptor.page_bytes)
        if boundary > here:
            missing = boundary - max(needed.start, here)
            seconds += RDMA.seconds(missing, missing * descriptor.page_bytes)
        best = max(best, cost.seconds(boundary * descriptor.page_tokens) - seconds)
    found = explain(descriptor, cost, MEMORY, here, [offer(RDMA, there)])
    assert found.gain_seconds == pytest.approx(best, abs=1e-12)
