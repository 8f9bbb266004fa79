"""What the tests of groups share: a hybrid model's descriptors, and a daemon with room for some of its boundaries."""

from collections.abc import Iterator

import pytest

import nexuskv
from nexuskv.contract import Descriptor, Window
from tests.support.daemon import Daemon, running


def attention(name: str = "attention", head_dim: int = 8) -> Descriptor:
    """Every page counts; 4 tokens a page."""
    return nexuskv.mha(
        name, layers=1, kv_heads=1, head_dim=head_dim, page_tokens=4, dtype="float16", engine_family="VLLM"
    )


def window() -> Descriptor:
    """The last 10 tokens count, so three pages."""
    return nexuskv.mha(
        "window", layers=1, kv_heads=1, head_dim=24, page_tokens=4, dtype="float16", engine_family="VLLM",
        reuse=Window(tokens=10),
    )  # fmt: skip


def checkpoint() -> Descriptor:
    """The last one counts; one every 8 tokens."""
    return nexuskv.mamba2(
        "checkpoint", heads=1, head_dim=8, state_size=8, page_tokens=8, dtype="float16", engine_family="VLLM"
    )


ATTENTION, INDEXER, CHECKPOINT, WINDOW = attention(), attention("indexer", 4), checkpoint(), window()
HYBRID = (ATTENTION, INDEXER, CHECKPOINT)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running("--segment-bytes", "4KiB", memory="1MiB") as daemon:
        yield daemon


@pytest.fixture(params=[True, False], ids=["shared", "asked"])
def client(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[nexuskv.Client]:
    with daemon.client(shared=request.param) as client:
        yield client


@pytest.fixture
def group(client: nexuskv.Client) -> nexuskv.Group:
    return client.open_group(HYBRID, model="m")
