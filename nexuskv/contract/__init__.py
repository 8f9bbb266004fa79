"""The contract of a page: what it holds, where in it, how large it is, and how it is found.

Gathers the public names. Knows nothing of processes, sockets or shared memory: it is what every engine, the daemon and
the transports agree on, and it imports nothing of theirs.
"""

from nexuskv.contract.checks import MAX_PAGE_BYTES, check_page_limit
from nexuskv.contract.codec import decode, encode, from_json, to_json
from nexuskv.contract.compatibility import Aspect, Compatibility, Reason, Verdict, compatible
from nexuskv.contract.conflict import differing_fields
from nexuskv.contract.descriptor import DIGEST_BYTES, Descriptor
from nexuskv.contract.dtypes import DType
from nexuskv.contract.keys import (
    KEY_BYTES,
    MAX_TOKEN_ID,
    Content,
    TokenIds,
    chain_root,
    content_keys,
    content_root,
    exact_keys,
    page_and_tail_keys,
    page_keys,
    token_bytes,
)
from nexuskv.contract.kinds import (
    AnyDescriptor,
    DsaSparse,
    KdaRecurrent,
    MhaKv,
    MlaLatent,
    NsaSparse,
    SsmMamba2,
    TotBranch,
    VisionKv,
    dsa,
    dsa_indexer,
    kda,
    mamba2,
    mha,
    mla,
    nsa,
    tot,
    vision,
)
from nexuskv.contract.placement import PageLayout, TensorPlace, slot_bytes
from nexuskv.contract.presets import MULTI_HEAD, PRESETS
from nexuskv.contract.reuse import AllPages, LastCheckpoint, Reuse, Window, usable
from nexuskv.contract.savings import context_bytes, context_saving, saving
from nexuskv.contract.schema import json_schema
from nexuskv.contract.tensors import Layout, Quantization, TensorSpec
from nexuskv.contract.vocabulary import (
    Arrangement,
    DimensionOrder,
    EngineFamily,
    Flag,
    Granularity,
    Role,
    Scheme,
)

__all__ = [
    "DIGEST_BYTES",
    "KEY_BYTES",
    "MAX_PAGE_BYTES",
    "MAX_TOKEN_ID",
    "MULTI_HEAD",
    "PRESETS",
    "AllPages",
    "AnyDescriptor",
    "Arrangement",
    "Aspect",
    "Compatibility",
    "Content",
    "DType",
    "Descriptor",
    "DimensionOrder",
    "DsaSparse",
    "EngineFamily",
    "Flag",
    "Granularity",
    "KdaRecurrent",
    "LastCheckpoint",
    "Layout",
    "MhaKv",
    "MlaLatent",
    "NsaSparse",
    "PageLayout",
    "Quantization",
    "Reason",
    "Reuse",
    "Role",
    "Scheme",
    "SsmMamba2",
    "TensorPlace",
    "TensorSpec",
    "TokenIds",
    "TotBranch",
    "Verdict",
    "VisionKv",
    "Window",
    "chain_root",
    "check_page_limit",
    "compatible",
    "content_keys",
    "content_root",
    "context_bytes",
    "context_saving",
    "decode",
    "differing_fields",
    "dsa",
    "dsa_indexer",
    "encode",
    "exact_keys",
    "from_json",
    "json_schema",
    "kda",
    "mamba2",
    "mha",
    "mla",
    "nsa",
    "page_and_tail_keys",
    "page_keys",
    "saving",
    "slot_bytes",
    "to_json",
    "token_bytes",
    "tot",
    "usable",
    "vision",
]
