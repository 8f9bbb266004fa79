"""The kinds of state that this version knows: the tagged union that decoding and the JSON Schema are built from.

A new kind is one file here (its struct, its constructor) and one member of `AnyDescriptor`; nothing else lists kinds.
"""

from typing import TypeAlias

from nexuskv.contract.kinds.mha_kv import MhaKv, mha
from nexuskv.contract.kinds.mla_latent import MlaLatent, mla
from nexuskv.contract.kinds.ssm_mamba2 import SsmMamba2, mamba2

AnyDescriptor: TypeAlias = MhaKv | MlaLatent | SsmMamba2

__all__ = ["AnyDescriptor", "MhaKv", "MlaLatent", "SsmMamba2", "mamba2", "mha", "mla"]
