"""What other hosts are needed for is done by the flags of the descriptor that whoever asks has opened."""

import nexuskv
from nexuskv import contract
from nexuskv.contract import Descriptor, Flag
from nexuskv.protocol import messages as m
from nexuskv.protocol.cost import ComputeCost
from nexuskv.protocol.fetches import FetchGroup, MemberKeys
from nexuskv.protocol.hosts import Fetch
from nexuskv_daemon.core.effects import Abroad
from nexuskv_daemon.core.engine import Engine
from nexuskv_daemon.core.requests import Identity
from nexuskv_daemon.core.store import Store
from tests.core.readers import Readers

SEGMENT = 1 << 16
FLAGS = frozenset({Flag.EXACT_REUSE, Flag.PREFIX_REUSE})


def attention(name: str, flags: frozenset[Flag]) -> Descriptor:
    return nexuskv.mha(
        name, layers=1, kv_heads=1, head_dim=8, page_tokens=4, dtype="float16", engine_family="VLLM",
        compatibility_flags=flags,
    )  # fmt: skip


def test_engines_that_share_pages_keep_their_own_flags() -> None:
    anyhow, over_tcp = attention("anyhow", FLAGS | {Flag.ZERO_COPY_RDMA}), attention("over-tcp", FLAGS)
    assert anyhow.digest == over_tcp.digest
    readers = Readers()
    engine = Engine(Store(4 * SEGMENT, SEGMENT, lambda _: readers), Identity("i", "1", 1, 0.0))
    for session, descriptor in enumerate((anyhow, over_tcp), start=1):
        engine.connect(session, "t", operator=False)
        engine.handle(session, m.Hello(1, m.PROTOCOL_VERSION), 0.0)
        engine.handle(session, m.Register(2, contract.encode(descriptor)), 0.0)
    for descriptor in (anyhow, over_tcp):
        name, keys = descriptor.descriptor_id, [bytes(32)]
        for request in (
            Fetch(3, name, keys, 10, b"", 0, ComputeCost()),
            FetchGroup(4, 1, [MemberKeys(name, keys, b"")], 10),
        ):
            (effect,) = engine.handle(1, request, 0.0)
            assert isinstance(effect, Abroad)
            assert effect.descriptors == [descriptor]
