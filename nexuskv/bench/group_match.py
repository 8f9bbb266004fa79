"""How long an engine takes to find a boundary of a group, beside a match of one member's pages in the same run.

Owns the groups: three kinds of attention pages, of which a boundary needs all before it, and a hybrid, in which a
checkpoint takes the place of the third. Every member has as many pages as there are boundaries.
"""

import nexuskv
from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.latency import MICROSECONDS
from nexuskv.bench.measure import Action, interleaved, placed, repeated
from nexuskv.bench.setting import MODEL, PAGE_TOKENS, new_instance
from nexuskv.bench.suite import Effort, Tell
from nexuskv.contract import Descriptor
from nexuskv.harness.daemon import PrivateDaemon

BOUNDARIES = 256
AGAINST = f"match {BOUNDARIES} boundaries and let go, against one member's {BOUNDARIES} pages"
DEFINITIONS = (
    Definition("group_match", "us", "<=", 4, f"three attention members: {AGAINST}; median"),
    Definition("group_match_hybrid", "us", "<=", 4, f"two and a checkpoint: {AGAINST}; median"),
)
OPTIONS = ("--memory", "64MiB", "--segment-bytes", "4MiB")


def attention(head_dim: int) -> Descriptor:
    """Pages of which a boundary needs every one before it."""
    return nexuskv.mha(
        f"attention-{head_dim}", layers=1, kv_heads=1, head_dim=head_dim, page_tokens=PAGE_TOKENS,
        dtype="bfloat16", engine_family="VLLM",
    )  # fmt: skip


def checkpoint() -> Descriptor:
    """Pages of which a boundary needs the last one."""
    return nexuskv.mamba2(
        "checkpoint", heads=1, head_dim=16, state_size=16, page_tokens=PAGE_TOKENS, dtype="bfloat16",
        engine_family="VLLM",
    )  # fmt: skip


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds group_match and group_match_hybrid."""
    with PrivateDaemon(new_instance(), *OPTIONS) as daemon, nexuskv.connect(daemon.socket) as client:
        times = effort.pick(50, 5)
        actions = {
            "group_match": _group(client, (attention(16), attention(32), attention(64)), times),
            "group_match_hybrid": _group(client, (attention(16), attention(32), checkpoint()), times),
            "floor": _single(client, times),
        }
        for words, placement in effort.turns():
            tell(f"matches of groups, {words}")
            with placed(placement, (daemon.pid,)):
                found = interleaved(effort.pick(40, 2), actions)
            floor = found.pop("floor") * MICROSECONDS
            for name, seconds in found.items():
                readings.add(name, placement, seconds * MICROSECONDS, floor)


def _group(client: nexuskv.Client, descriptors: tuple[Descriptor, ...], times: int) -> Action:
    """A group whose boundaries are all there, and its match."""
    group = client.open_group(descriptors, model=MODEL, salt=descriptors[-1].descriptor_id)
    keys = group.keys(range(BOUNDARIES * PAGE_TOKENS))
    with group.reserve(keys):
        pass

    def match() -> None:
        with group.match(keys):
            pass

    return repeated(match, times)


def _single(client: nexuskv.Client, times: int) -> Action:
    """The first member's pages of the first group, and their match."""
    cache = client.open(attention(16), model=MODEL, salt="attention-64")
    keys = cache.keys(range(BOUNDARIES * PAGE_TOKENS))

    def match() -> None:
        with cache.match(keys):
            pass

    return repeated(match, times)
