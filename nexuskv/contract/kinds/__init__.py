"""The kinds of state that this version knows: the tagged union that decoding and the JSON Schema are built from.

A new kind is one file here (its struct, its constructor) and one member of `AnyDescriptor`; nothing else lists kinds.
"""

from typing import TypeAlias

from nexuskv.contract.kinds.dsa_sparse import DsaSparse, dsa, dsa_indexer
from nexuskv.contract.kinds.kda_recurrent import KdaRecurrent, kda
from nexuskv.contract.kinds.mha_kv import MhaKv, mha
from nexuskv.contract.kinds.mla_latent import MlaLatent, mla
from nexuskv.contract.kinds.nsa_sparse import NsaSparse, nsa
from nexuskv.contract.kinds.ssm_mamba2 import SsmMamba2, mamba2
from nexuskv.contract.kinds.tot_branch import TotBranch, tot
from nexuskv.contract.kinds.vision_kv import VisionKv, vision

AnyDescriptor: TypeAlias = (
    MhaKv | MlaLatent | DsaSparse | KdaRecurrent | SsmMamba2 | NsaSparse | VisionKv | TotBranch
)

__all__ = [
    "AnyDescriptor",
    "DsaSparse",
    "KdaRecurrent",
    "MhaKv",
    "MlaLatent",
    "NsaSparse",
    "SsmMamba2",
    "TotBranch",
    "VisionKv",
    "dsa",
    "dsa_indexer",
    "kda",
    "mamba2",
    "mha",
    "mla",
    "nsa",
    "tot",
    "vision",
]
